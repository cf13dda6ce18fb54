-- The jobs that a worker may claim, in the order of claiming: those that wait
-- and those whose worker may be gone. render_queue holds the former alone, so
-- the database went through all jobs there ever were, or sorted all that wait,
-- to find the oldest of both.

-- +goose Up
CREATE INDEX render_open ON render_jobs (created_at, id) WHERE state IN ('PENDING', 'PROCESSING');

-- +goose Down
DROP INDEX render_open;
