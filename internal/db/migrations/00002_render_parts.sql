-- Parts of renders that several replicas may make at once.

-- +goose Up
CREATE TABLE render_parts (
    job_id      TEXT NOT NULL REFERENCES render_jobs (id) ON DELETE CASCADE,
    part_key    TEXT NOT NULL,
    -- FAILED: an assistant could not make it; whoever renders the job tries
    -- itself and finds out why.
    state       TEXT NOT NULL CHECK (state IN ('OPEN', 'MAKING', 'MADE', 'FAILED')),
    owner       TEXT,
    lease_until BIGINT,
    PRIMARY KEY (job_id, part_key)
);
CREATE INDEX render_parts_open ON render_parts (job_id) WHERE state = 'OPEN';

-- +goose Down
DROP TABLE render_parts;
