-- Totals over all jobs, and over the provider's calls of past days, without
-- reading the rows of years. 00020 fills and keeps the first three tables.

-- +goose Up

-- How many jobs of a day (of their submission) are in a state that is an end, by
-- the bucket of the histogram that their source's duration falls into.
CREATE TABLE job_days (
    job_type           TEXT NOT NULL,
    day                BIGINT NOT NULL, -- since 1970-01-01, in UTC
    state              TEXT NOT NULL,
    bucket             INTEGER NOT NULL,
    jobs               BIGINT NOT NULL,
    source_duration_ms BIGINT NOT NULL, -- the sum
    PRIMARY KEY (job_type, day, state, bucket)
);

-- What job_days does not hold yet: that a job came to such a state (1), or left
-- it, or its row went (-1).
CREATE TABLE job_changes (
    job_type           TEXT NOT NULL,
    created_at         BIGINT NOT NULL,
    state              TEXT NOT NULL,
    source_duration_ms BIGINT NOT NULL,
    jobs               BIGINT NOT NULL
);

-- How many of a day's calls took so long, and failed: whatever is asked of a day
-- can be told exactly from them, and they are fewer than its calls.
CREATE TABLE provider_latencies (
    day        BIGINT NOT NULL,
    provider   TEXT NOT NULL,
    endpoint   TEXT NOT NULL,
    latency_ms BIGINT NOT NULL,
    calls      BIGINT NOT NULL,
    failures   BIGINT NOT NULL,
    PRIMARY KEY (day, provider, endpoint, latency_ms)
);

-- The calls of a day that is over, as the report shows them.
CREATE TABLE provider_call_days (
    day      BIGINT NOT NULL,
    provider TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    calls    BIGINT NOT NULL,
    failures BIGINT NOT NULL,
    p95_ms   BIGINT NOT NULL,
    PRIMARY KEY (day, provider, endpoint)
);

-- +goose Down
DROP TABLE provider_call_days;
DROP TABLE provider_latencies;
DROP TABLE job_changes;
DROP TABLE job_days;
