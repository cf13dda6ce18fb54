-- What PostgreSQL needs beside the tables. SQLite gets now_ms() from its driver, and its triggers from
-- 00002_functions.sqlite.sql.

-- +goose Up

-- clock_timestamp instead of now(), because a transaction that waited for a lock must see the current time. Rounded
-- down, because rounding up would put it ahead of every other clock.
CREATE FUNCTION now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

-- By default a fifth of a table is dead before it is vacuumed: millions of rows. Free space in each page keeps the
-- renewal of a lease, every few seconds, from writing to the indexes.
ALTER TABLE render_jobs SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_insert_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.01);
ALTER TABLE separation_jobs SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_insert_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.01);
ALTER TABLE separation_stems SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.01);
ALTER TABLE credit_ledger SET (autovacuum_vacuum_insert_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.01);
ALTER TABLE provider_calls SET (autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_insert_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.01);
ALTER TABLE users SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
ALTER TABLE credit_balances SET (fillfactor = 80);
ALTER TABLE request_times SET (fillfactor = 50);
ALTER TABLE render_turns SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.01);

-- Totals count every way in which a job ends or goes, also the cascade of a deleted account. The trigger adds rows
-- and changes none, so that jobs that end at the same time do not wait for each other.
-- +goose StatementBegin
CREATE FUNCTION count_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' AND OLD.state IN ('COMPLETED', 'FAILED', 'READY', 'DISPOSED') THEN
        INSERT INTO job_changes VALUES (TG_ARGV[0], OLD.created_at, OLD.state, OLD.source_duration_ms, -1);
    END IF;
    IF TG_OP <> 'DELETE' AND NEW.state IN ('COMPLETED', 'FAILED', 'READY', 'DISPOSED') THEN
        INSERT INTO job_changes VALUES (TG_ARGV[0], NEW.created_at, NEW.state, NEW.source_duration_ms, 1);
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER count_added AFTER INSERT ON render_jobs FOR EACH ROW
    WHEN (NEW.state IN ('COMPLETED', 'FAILED')) EXECUTE FUNCTION count_job('render');
CREATE TRIGGER count_moved AFTER UPDATE OF state ON render_jobs FOR EACH ROW
    WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION count_job('render');
CREATE TRIGGER count_gone AFTER DELETE ON render_jobs FOR EACH ROW EXECUTE FUNCTION count_job('render');
CREATE TRIGGER count_added AFTER INSERT ON separation_jobs FOR EACH ROW
    WHEN (NEW.state IN ('READY', 'DISPOSED', 'FAILED')) EXECUTE FUNCTION count_job('separation');
CREATE TRIGGER count_moved AFTER UPDATE OF state ON separation_jobs FOR EACH ROW
    WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION count_job('separation');
CREATE TRIGGER count_gone AFTER DELETE ON separation_jobs FOR EACH ROW EXECUTE FUNCTION count_job('separation');

-- Each row is changed under its lock. The lock is a statement of its own, because the
-- statement after it sees what others committed while this one waited. The trigger is
-- deferred: nobody waits for the lock longer than a commit takes.
--
-- Only when the oldest waiting job no longer waits is another one looked for, and from that
-- job on: without the bound, PostgreSQL may choose an index that holds all ended jobs.
-- +goose StatementBegin
CREATE FUNCTION recount_render_turn() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    owner TEXT := COALESCE(NEW.user_id, OLD.user_id);
    next_at BIGINT;
    next_id TEXT;
    change BIGINT := 0;
BEGIN
    IF TG_OP <> 'INSERT' AND OLD.state = 'PROCESSING' THEN
        change := -1;
    END IF;
    IF TG_OP <> 'DELETE' AND NEW.state = 'PROCESSING' THEN
        change := change + 1;
    END IF;
    IF change = -1 AND NEW.state IS DISTINCT FROM 'PENDING' THEN -- the end of a running job
        UPDATE render_turns SET processing = processing - 1, last_started_at = GREATEST(last_started_at, NEW.started_at)
        WHERE user_id = owner;
        RETURN NULL;
    END IF;
    SELECT next_created_at, next_job_id INTO next_at, next_id FROM render_turns WHERE user_id = owner FOR UPDATE;
    IF NOT FOUND AND TG_OP <> 'DELETE' THEN
        INSERT INTO render_turns (user_id) VALUES (owner) ON CONFLICT (user_id) DO NOTHING;
        SELECT next_created_at, next_job_id INTO next_at, next_id FROM render_turns WHERE user_id = owner FOR UPDATE;
    END IF;
    IF NEW.state = 'PENDING' THEN
        IF next_id IS NULL OR (NEW.created_at, NEW.id) < (next_at, next_id) THEN
            next_at := NEW.created_at;
            next_id := NEW.id;
        END IF;
    ELSIF next_id = OLD.id THEN
        SELECT created_at, id INTO next_at, next_id FROM render_jobs
        WHERE user_id = owner AND state IN ('PENDING', 'PROCESSING') AND state <> 'PROCESSING' AND (created_at, id) > (next_at, next_id)
        ORDER BY created_at, id LIMIT 1;
    END IF;
    UPDATE render_turns SET processing = processing + change, last_started_at = GREATEST(last_started_at, NEW.started_at),
        next_created_at = next_at, next_job_id = next_id
    WHERE user_id = owner
        AND (change <> 0 OR NEW.started_at > last_started_at OR next_job_id IS DISTINCT FROM next_id);
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE CONSTRAINT TRIGGER turn_added AFTER INSERT ON render_jobs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.state IN ('PENDING', 'PROCESSING')) EXECUTE FUNCTION recount_render_turn();
CREATE CONSTRAINT TRIGGER turn_moved AFTER UPDATE OF state, started_at ON render_jobs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.state <> NEW.state OR OLD.started_at IS DISTINCT FROM NEW.started_at) EXECUTE FUNCTION recount_render_turn();
CREATE CONSTRAINT TRIGGER turn_gone AFTER DELETE ON render_jobs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.state IN ('PENDING', 'PROCESSING')) EXECUTE FUNCTION recount_render_turn();
