-- Parts are taken in the order in which they were announced, the dearest first: one
-- that is begun last is what all others would wait for.

-- +goose Up
ALTER TABLE render_parts ADD COLUMN place INTEGER NOT NULL DEFAULT 0;
DROP INDEX render_parts_open;
CREATE INDEX render_parts_open ON render_parts (job_id, place) WHERE state = 'OPEN';

-- +goose Down
DROP INDEX render_parts_open;
ALTER TABLE render_parts DROP COLUMN place;
CREATE INDEX render_parts_open ON render_parts (job_id) WHERE state = 'OPEN';
