-- The triggers of 00002_functions.postgres.sql for SQLite.

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
-- +goose StatementBegin
CREATE TRIGGER render_turn_added AFTER INSERT ON render_jobs WHEN NEW.state IN ('PENDING', 'PROCESSING') BEGIN
    INSERT INTO render_turns (user_id) VALUES (NEW.user_id) ON CONFLICT (user_id) DO NOTHING;
    UPDATE render_turns SET processing = processing + (NEW.state = 'PROCESSING'),
        last_started_at = MAX(last_started_at, COALESCE(NEW.started_at, 0)),
        (next_created_at, next_job_id) = (SELECT created_at, id FROM render_jobs
            WHERE user_id = NEW.user_id AND state IN ('PENDING', 'PROCESSING') AND state <> 'PROCESSING' ORDER BY created_at, id LIMIT 1)
    WHERE user_id = NEW.user_id;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER render_turn_moved AFTER UPDATE OF state, started_at ON render_jobs
    WHEN OLD.state <> NEW.state OR OLD.started_at IS NOT NEW.started_at BEGIN
    INSERT INTO render_turns (user_id) VALUES (NEW.user_id) ON CONFLICT (user_id) DO NOTHING;
    UPDATE render_turns SET processing = processing + (NEW.state = 'PROCESSING') - (OLD.state = 'PROCESSING'),
        last_started_at = MAX(last_started_at, COALESCE(NEW.started_at, 0)),
        (next_created_at, next_job_id) = (SELECT created_at, id FROM render_jobs
            WHERE user_id = NEW.user_id AND state IN ('PENDING', 'PROCESSING') AND state <> 'PROCESSING' ORDER BY created_at, id LIMIT 1)
    WHERE user_id = NEW.user_id;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER render_turn_gone AFTER DELETE ON render_jobs WHEN OLD.state IN ('PENDING', 'PROCESSING') BEGIN
    UPDATE render_turns SET processing = processing - (OLD.state = 'PROCESSING'),
        (next_created_at, next_job_id) = (SELECT created_at, id FROM render_jobs
            WHERE user_id = OLD.user_id AND state IN ('PENDING', 'PROCESSING') AND state <> 'PROCESSING' ORDER BY created_at, id LIMIT 1)
    WHERE user_id = OLD.user_id;
END;
-- +goose StatementEnd
