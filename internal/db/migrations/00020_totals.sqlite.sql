-- 00020_totals.postgres.sql for SQLite.

-- +goose Up
-- +goose StatementBegin
CREATE TRIGGER render_added AFTER INSERT ON render_jobs BEGIN
    INSERT INTO job_changes SELECT 'render', NEW.created_at, NEW.state, NEW.source_duration_ms, 1 WHERE NEW.state IN ('COMPLETED', 'FAILED', 'READY', 'DISPOSED');
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER render_moved AFTER UPDATE OF state ON render_jobs WHEN OLD.state <> NEW.state BEGIN
    INSERT INTO job_changes SELECT 'render', OLD.created_at, OLD.state, OLD.source_duration_ms, -1 WHERE OLD.state IN ('COMPLETED', 'FAILED', 'READY', 'DISPOSED');
    INSERT INTO job_changes SELECT 'render', NEW.created_at, NEW.state, NEW.source_duration_ms, 1 WHERE NEW.state IN ('COMPLETED', 'FAILED', 'READY', 'DISPOSED');
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER render_gone AFTER DELETE ON render_jobs BEGIN
    INSERT INTO job_changes SELECT 'render', OLD.created_at, OLD.state, OLD.source_duration_ms, -1 WHERE OLD.state IN ('COMPLETED', 'FAILED', 'READY', 'DISPOSED');
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER separation_added AFTER INSERT ON separation_jobs BEGIN
    INSERT INTO job_changes SELECT 'separation', NEW.created_at, NEW.state, NEW.source_duration_ms, 1 WHERE NEW.state IN ('COMPLETED', 'FAILED', 'READY', 'DISPOSED');
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER separation_moved AFTER UPDATE OF state ON separation_jobs WHEN OLD.state <> NEW.state BEGIN
    INSERT INTO job_changes SELECT 'separation', OLD.created_at, OLD.state, OLD.source_duration_ms, -1 WHERE OLD.state IN ('COMPLETED', 'FAILED', 'READY', 'DISPOSED');
    INSERT INTO job_changes SELECT 'separation', NEW.created_at, NEW.state, NEW.source_duration_ms, 1 WHERE NEW.state IN ('COMPLETED', 'FAILED', 'READY', 'DISPOSED');
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER separation_gone AFTER DELETE ON separation_jobs BEGIN
    INSERT INTO job_changes SELECT 'separation', OLD.created_at, OLD.state, OLD.source_duration_ms, -1 WHERE OLD.state IN ('COMPLETED', 'FAILED', 'READY', 'DISPOSED');
END;
-- +goose StatementEnd

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
GROUP BY job_type, created_at / 86400000, state, bucket;

-- +goose StatementBegin
CREATE TRIGGER count_call AFTER INSERT ON provider_calls BEGIN
    INSERT INTO provider_latencies VALUES (NEW.created_at / 86400000, NEW.provider, NEW.endpoint, NEW.latency_ms, 1,
        CASE WHEN NEW.success = 0 THEN 1 ELSE 0 END)
    ON CONFLICT (day, provider, endpoint, latency_ms) DO UPDATE SET calls = provider_latencies.calls + 1,
        failures = provider_latencies.failures + excluded.failures;
END;
-- +goose StatementEnd
INSERT INTO provider_latencies SELECT created_at / 86400000, provider, endpoint, latency_ms, COUNT(*),
    SUM(CASE WHEN success = 0 THEN 1 ELSE 0 END)
FROM provider_calls GROUP BY created_at / 86400000, provider, endpoint, latency_ms;

CREATE INDEX render_processing ON render_jobs (created_at, id) WHERE state = 'PROCESSING';
DROP INDEX render_running;
CREATE INDEX separation_at_work ON separation_jobs (created_at, id) WHERE state IN ('SUBMITTING', 'PROCESSING');
DROP INDEX separation_in_flight;
CREATE INDEX users_listed ON users (last_active_at DESC, id) WHERE erasing_at IS NULL;
DROP INDEX users_by_activity;
CREATE INDEX credit_ledger_minted ON credit_ledger (amount) WHERE kind = 'admin';
CREATE INDEX purchases_sold ON purchases (buyer_id) WHERE reversed_at IS NULL;
CREATE INDEX separation_underpaid ON separation_jobs (id)
    WHERE actual_duration_ms > credits * 300000 + 1000 AND actual_duration_ms > source_duration_ms + 500;

-- +goose Down
DROP INDEX separation_underpaid;
DROP INDEX purchases_sold;
DROP INDEX credit_ledger_minted;
CREATE INDEX users_by_activity ON users (last_active_at);
DROP INDEX users_listed;
CREATE INDEX separation_in_flight ON separation_jobs (lease_until) WHERE state IN ('SUBMITTING', 'PROCESSING');
DROP INDEX separation_at_work;
CREATE INDEX render_running ON render_jobs (lease_until) WHERE state = 'PROCESSING';
DROP INDEX render_processing;
DROP TRIGGER count_call;
DROP TRIGGER separation_gone;
DROP TRIGGER separation_moved;
DROP TRIGGER separation_added;
DROP TRIGGER render_gone;
DROP TRIGGER render_moved;
DROP TRIGGER render_added;
