-- When the provider said that it was done: the time-out is on the provider, and
-- stems that it made in time must not be lost to the time it takes to fetch them.

-- +goose Up
ALTER TABLE separation_jobs ADD COLUMN provider_done_at BIGINT;

-- +goose Down
ALTER TABLE separation_jobs DROP COLUMN provider_done_at;
