-- A job that found no room on a replica's disk waits for one that has more, and
-- not for ever. needs_bytes is what it needs at least, where that is known;
-- short_since is since when no live replica has had that much.

-- +goose Up
ALTER TABLE render_jobs ADD COLUMN needs_bytes BIGINT;
ALTER TABLE render_jobs ADD COLUMN short_since BIGINT;

-- +goose Down
ALTER TABLE render_jobs DROP COLUMN short_since;
ALTER TABLE render_jobs DROP COLUMN needs_bytes;
