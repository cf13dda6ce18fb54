-- 00045_render_turns.postgres.sql for SQLite.

-- +goose Up
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

INSERT INTO render_turns (user_id, processing, last_started_at, next_created_at, next_job_id)
SELECT j.user_id, SUM(j.state = 'PROCESSING'), MAX(COALESCE(j.started_at, 0)), n.created_at, n.id
FROM render_jobs j LEFT JOIN (SELECT user_id, created_at, id, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY created_at, id) AS place
    FROM render_jobs WHERE state = 'PENDING') AS n ON n.user_id = j.user_id AND n.place = 1
GROUP BY j.user_id, n.created_at, n.id;

-- +goose Down
DROP TRIGGER render_turn_gone;
DROP TRIGGER render_turn_moved;
DROP TRIGGER render_turn_added;
DELETE FROM render_turns;
