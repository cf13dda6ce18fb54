-- What the replicas tell each other: how many jobs each may run at once, and how
-- much disk it may still fill. One that was not seen for a while counts as gone.
-- Jobs are claimed in fair turns among their owners, so that the queue is read
-- owner by owner.

-- +goose Up
CREATE TABLE replicas (
    id         TEXT PRIMARY KEY,
    slots      INTEGER NOT NULL,
    free_bytes BIGINT NOT NULL,
    seen_at    BIGINT NOT NULL
);
CREATE INDEX render_open_by_user ON render_jobs (user_id, created_at, id) WHERE state IN ('PENDING', 'PROCESSING');
CREATE INDEX render_started ON render_jobs (user_id, started_at) WHERE started_at IS NOT NULL;
DROP INDEX render_open;

-- +goose Down
CREATE INDEX render_open ON render_jobs (created_at, id) WHERE state IN ('PENDING', 'PROCESSING');
DROP INDEX render_started;
DROP INDEX render_open_by_user;
DROP TABLE replicas;
