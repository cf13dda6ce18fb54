-- Fills and keeps the totals of jobs, and prepares the large tables for years.
-- 00020_totals.sqlite.sql is the same for SQLite.
--
-- Not in one transaction, which would keep jobs from being written while all of
-- them are read. Whatever was done already may be done again.

-- +goose NO TRANSACTION
-- +goose Up

-- Triggers tell of every change, so that no way in which a job ends or goes can
-- be forgotten: not the cascade of a deleted account, and not a replica of the
-- release before. They add rows and change none, so that jobs that end at the
-- same time do not wait for each other.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION count_job() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE OR REPLACE TRIGGER count_added AFTER INSERT ON render_jobs FOR EACH ROW
    WHEN (NEW.state IN ('COMPLETED', 'FAILED')) EXECUTE FUNCTION count_job('render');
CREATE OR REPLACE TRIGGER count_moved AFTER UPDATE OF state ON render_jobs FOR EACH ROW
    WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION count_job('render');
CREATE OR REPLACE TRIGGER count_gone AFTER DELETE ON render_jobs FOR EACH ROW EXECUTE FUNCTION count_job('render');
CREATE OR REPLACE TRIGGER count_added AFTER INSERT ON separation_jobs FOR EACH ROW
    WHEN (NEW.state IN ('READY', 'DISPOSED', 'FAILED')) EXECUTE FUNCTION count_job('separation');
CREATE OR REPLACE TRIGGER count_moved AFTER UPDATE OF state ON separation_jobs FOR EACH ROW
    WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION count_job('separation');
CREATE OR REPLACE TRIGGER count_gone AFTER DELETE ON separation_jobs FOR EACH ROW EXECUTE FUNCTION count_job('separation');

-- The jobs that ended before the triggers were there: all but those that a
-- trigger has told of in the same instant.
INSERT INTO job_days (job_type, day, state, bucket, jobs, source_duration_ms)
SELECT job_type, created_at / 86400000, state,
    CASE WHEN source_duration_ms < 60000 THEN 0 WHEN source_duration_ms < 300000 THEN 1
        WHEN source_duration_ms < 900000 THEN 2 WHEN source_duration_ms < 3600000 THEN 3 ELSE 4 END AS bucket,
    SUM(jobs), SUM(jobs * source_duration_ms)
FROM (SELECT 'render' AS job_type, created_at, state, source_duration_ms, 1 AS jobs FROM render_jobs
        WHERE state IN ('COMPLETED', 'FAILED')
    UNION ALL SELECT 'separation', created_at, state, source_duration_ms, 1 FROM separation_jobs
        WHERE state IN ('READY', 'DISPOSED', 'FAILED')
    UNION ALL SELECT job_type, created_at, state, source_duration_ms, -jobs FROM job_changes) AS ended
GROUP BY job_type, created_at / 86400000, state, bucket
ON CONFLICT (job_type, day, state, bucket) DO UPDATE SET jobs = excluded.jobs, source_duration_ms = excluded.source_duration_ms;

-- Calls are written in the background, which can wait for the counting of those
-- that are there.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION count_call() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO provider_latencies VALUES (NEW.created_at / 86400000, NEW.provider, NEW.endpoint, NEW.latency_ms, 1,
        CASE WHEN NEW.success = 0 THEN 1 ELSE 0 END)
    ON CONFLICT (day, provider, endpoint, latency_ms) DO UPDATE SET calls = provider_latencies.calls + 1,
        failures = provider_latencies.failures + excluded.failures;
    RETURN NULL;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
DO $$
BEGIN
    CREATE OR REPLACE TRIGGER count_call AFTER INSERT ON provider_calls FOR EACH ROW EXECUTE FUNCTION count_call();
    DELETE FROM provider_latencies;
    INSERT INTO provider_latencies SELECT created_at / 86400000, provider, endpoint, latency_ms, COUNT(*),
        SUM(CASE WHEN success = 0 THEN 1 ELSE 0 END)
    FROM provider_calls GROUP BY created_at / 86400000, provider, endpoint, latency_ms;
END $$;
-- +goose StatementEnd

-- An index on lease_until would learn of every renewal, and all the other
-- indexes of the table with it. A job that runs is found without.
DROP INDEX CONCURRENTLY IF EXISTS render_processing; -- half made
CREATE INDEX CONCURRENTLY render_processing ON render_jobs (created_at, id) WHERE state = 'PROCESSING';
DROP INDEX CONCURRENTLY IF EXISTS render_running;
DROP INDEX CONCURRENTLY IF EXISTS separation_at_work; -- half made
CREATE INDEX CONCURRENTLY separation_at_work ON separation_jobs (created_at, id) WHERE state IN ('SUBMITTING', 'PROCESSING');
DROP INDEX CONCURRENTLY IF EXISTS separation_in_flight;
-- What reports and monitoring look for among very many.
DROP INDEX CONCURRENTLY IF EXISTS users_listed; -- half made
CREATE INDEX CONCURRENTLY users_listed ON users (last_active_at DESC, id) WHERE erasing_at IS NULL;
DROP INDEX CONCURRENTLY IF EXISTS users_by_activity;
DROP INDEX CONCURRENTLY IF EXISTS credit_ledger_minted; -- half made
CREATE INDEX CONCURRENTLY credit_ledger_minted ON credit_ledger (amount) WHERE kind = 'admin';
DROP INDEX CONCURRENTLY IF EXISTS purchases_sold; -- half made
CREATE INDEX CONCURRENTLY purchases_sold ON purchases (buyer_id) WHERE reversed_at IS NULL;
DROP INDEX CONCURRENTLY IF EXISTS separation_underpaid; -- half made
CREATE INDEX CONCURRENTLY separation_underpaid ON separation_jobs (id)
    WHERE actual_duration_ms > credits * 300000 + 1000 AND actual_duration_ms > source_duration_ms + 500;

-- A fifth of a table is too much to wait for where it has millions of rows:
-- dead rows and stale statistics would pile up for weeks. And what is renewed
-- every few seconds finds room in its own page, so that no index learns of it.
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

-- +goose Down
ALTER TABLE request_times RESET (fillfactor);
ALTER TABLE credit_balances RESET (fillfactor);
ALTER TABLE users RESET (autovacuum_vacuum_scale_factor, autovacuum_analyze_scale_factor);
ALTER TABLE provider_calls RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_insert_scale_factor, autovacuum_analyze_scale_factor);
ALTER TABLE credit_ledger RESET (autovacuum_vacuum_insert_scale_factor, autovacuum_analyze_scale_factor);
ALTER TABLE separation_stems RESET (autovacuum_vacuum_scale_factor, autovacuum_analyze_scale_factor);
ALTER TABLE separation_jobs RESET (fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_insert_scale_factor, autovacuum_analyze_scale_factor);
ALTER TABLE render_jobs RESET (fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_insert_scale_factor, autovacuum_analyze_scale_factor);
DROP INDEX separation_underpaid;
DROP INDEX purchases_sold;
DROP INDEX credit_ledger_minted;
CREATE INDEX users_by_activity ON users (last_active_at);
DROP INDEX users_listed;
CREATE INDEX separation_in_flight ON separation_jobs (lease_until) WHERE state IN ('SUBMITTING', 'PROCESSING');
DROP INDEX separation_at_work;
CREATE INDEX render_running ON render_jobs (lease_until) WHERE state = 'PROCESSING';
DROP INDEX render_processing;
DROP FUNCTION count_call CASCADE;
DROP FUNCTION count_job CASCADE;
