-- +goose Up
-- The trace of the request that submitted a job (W3C traceparent), continued by every attempt.
ALTER TABLE render_jobs ADD COLUMN trace_parent TEXT;
ALTER TABLE separation_jobs ADD COLUMN trace_parent TEXT;
