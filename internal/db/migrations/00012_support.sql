-- What support and an operator need: a record of who did what, an end to all of
-- a user's tokens, and what a job's row did not tell.

-- +goose Up

-- Who did what to whom. It outlives accounts and holds ids alone, no personal
-- data: target and actor are no foreign keys.
CREATE TABLE audit (
    id         TEXT PRIMARY KEY,
    created_at BIGINT NOT NULL,
    -- A user's id, 'cli:<uid>' for the command line, or 'service'.
    actor      TEXT NOT NULL,
    action     TEXT NOT NULL,
    -- The id of what was acted on: a user's, or an installation's.
    target     TEXT NOT NULL,
    detail     TEXT NOT NULL -- a JSON object
);
CREATE INDEX audit_by_time ON audit (created_at, id);
CREATE INDEX audit_by_target ON audit (target, created_at);

-- Access tokens issued before this time are invalid.
ALTER TABLE users ADD COLUMN signed_out_at BIGINT;
CREATE INDEX users_signed_out ON users (signed_out_at) WHERE signed_out_at IS NOT NULL;

-- What the log says of a failure, and who worked on the job last: for support,
-- never for the job's owner.
ALTER TABLE render_jobs ADD COLUMN failure_cause TEXT;
ALTER TABLE render_jobs ADD COLUMN replica TEXT;
ALTER TABLE separation_jobs ADD COLUMN failure_cause TEXT;
ALTER TABLE separation_jobs ADD COLUMN replica TEXT;

-- +goose Down
ALTER TABLE separation_jobs DROP COLUMN replica;
ALTER TABLE separation_jobs DROP COLUMN failure_cause;
ALTER TABLE render_jobs DROP COLUMN replica;
ALTER TABLE render_jobs DROP COLUMN failure_cause;
DROP INDEX users_signed_out;
ALTER TABLE users DROP COLUMN signed_out_at;
DROP TABLE audit;
