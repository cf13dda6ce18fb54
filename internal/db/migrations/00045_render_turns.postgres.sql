-- Fills and keeps render_turns. 00045_render_turns.sqlite.sql is the same for SQLite.
--
-- Not in one transaction, which would keep jobs from being written while the starts of
-- all of them are read. Every step may run again.

-- +goose NO TRANSACTION
-- +goose Up

-- Each row is changed under its lock. The lock is a statement of its own, because the
-- statement after it sees what others committed while this one waited. The trigger is
-- deferred: nobody waits for the lock longer than a commit takes.
--
-- Only when the oldest waiting job no longer waits is another one looked for, and from that
-- job on: without the bound, PostgreSQL may choose an index that holds all ended jobs.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION recount_render_turn() RETURNS trigger LANGUAGE plpgsql AS $$
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

-- +goose StatementBegin
DO $$
BEGIN
    DROP TRIGGER IF EXISTS turn_added ON render_jobs;
    DROP TRIGGER IF EXISTS turn_moved ON render_jobs;
    DROP TRIGGER IF EXISTS turn_gone ON render_jobs;
    CREATE CONSTRAINT TRIGGER turn_added AFTER INSERT ON render_jobs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
        WHEN (NEW.state IN ('PENDING', 'PROCESSING')) EXECUTE FUNCTION recount_render_turn();
    CREATE CONSTRAINT TRIGGER turn_moved AFTER UPDATE OF state, started_at ON render_jobs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
        WHEN (OLD.state <> NEW.state OR OLD.started_at IS DISTINCT FROM NEW.started_at) EXECUTE FUNCTION recount_render_turn();
    CREATE CONSTRAINT TRIGGER turn_gone AFTER DELETE ON render_jobs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
        WHEN (OLD.state IN ('PENDING', 'PROCESSING')) EXECUTE FUNCTION recount_render_turn();
    -- The triggers keep others from writing jobs until the open ones are counted.
    DELETE FROM render_turns;
    INSERT INTO render_turns (user_id, processing, next_created_at, next_job_id)
    SELECT o.user_id, o.processing, n.created_at, n.id
    FROM (SELECT user_id, COUNT(*) FILTER (WHERE state = 'PROCESSING') AS processing FROM render_jobs
            WHERE state IN ('PENDING', 'PROCESSING') GROUP BY user_id) AS o
        LEFT JOIN (SELECT DISTINCT ON (user_id) user_id, created_at, id FROM render_jobs
            WHERE state = 'PENDING' ORDER BY user_id, created_at, id) AS n ON n.user_id = o.user_id;
END $$;
-- +goose StatementEnd

-- The rows are locked only while they are written, not while jobs are read.
WITH starts AS MATERIALIZED (SELECT user_id, MAX(started_at) AS at FROM render_jobs WHERE started_at IS NOT NULL GROUP BY user_id)
INSERT INTO render_turns AS t (user_id, last_started_at) SELECT user_id, at FROM starts ORDER BY user_id
ON CONFLICT (user_id) DO UPDATE SET last_started_at = GREATEST(t.last_started_at, excluded.last_started_at);

ALTER TABLE render_turns SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.01);

-- +goose Down
DROP FUNCTION recount_render_turn CASCADE;
DELETE FROM render_turns;
