-- Whose turn it is: one row for each account that ever submitted a render, in the order
-- in which accounts get slots. Triggers keep it (00045), so every way in which a job
-- moves or goes counts, and so do replicas of the release before.

-- +goose Up
CREATE TABLE render_turns (
    user_id         TEXT PRIMARY KEY REFERENCES users (id) ON DELETE CASCADE,
    processing      BIGINT NOT NULL DEFAULT 0, -- the jobs in that state
    last_started_at BIGINT NOT NULL DEFAULT 0, -- 0: none was ever started
    -- The oldest PENDING job, null if there is none.
    next_created_at BIGINT,
    next_job_id     TEXT
);
CREATE INDEX render_turns_waiting ON render_turns (processing, last_started_at, next_created_at, next_job_id)
    WHERE next_job_id IS NOT NULL;

-- +goose Down
DROP TABLE render_turns;
