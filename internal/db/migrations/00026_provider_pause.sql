-- A separation provider that is busy is asked again later.

-- +goose Up

-- When the provider first refused the job for being busy, and with which status.
ALTER TABLE separation_jobs ADD COLUMN busy_since BIGINT;
ALTER TABLE separation_jobs ADD COLUMN busy_status INTEGER;

-- Until when no replica submits anything to the provider, and how often in a row the
-- provider was busy without saying for how long. It has one row.
CREATE TABLE separation_pause (
    id       INTEGER PRIMARY KEY,
    until_ms BIGINT NOT NULL,
    refusals INTEGER NOT NULL
);
INSERT INTO separation_pause (id, until_ms, refusals) VALUES (1, 0, 0);

-- +goose Down
DROP TABLE separation_pause;
ALTER TABLE separation_jobs DROP COLUMN busy_status;
ALTER TABLE separation_jobs DROP COLUMN busy_since;
