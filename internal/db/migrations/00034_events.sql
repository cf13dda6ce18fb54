-- The outbox: jobs that ended and whom that is told. A row of events is written in the
-- transaction that ends a job; its deliveries are made from it, one for the web hook and
-- one for each device of the job's owner.

-- +goose Up
CREATE TABLE devices (
    id            TEXT PRIMARY KEY, -- a hash of platform and token: a token is too long for an index
    user_id       TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    platform      TEXT NOT NULL,
    token         TEXT NOT NULL,
    turn          BIGINT NOT NULL, -- of registration, among the user's devices
    registered_at BIGINT NOT NULL
);
CREATE INDEX devices_by_user ON devices (user_id, turn);

CREATE TABLE events (
    id            TEXT PRIMARY KEY,
    type          TEXT NOT NULL,
    job_id        TEXT NOT NULL,
    user_id       TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    error_code    TEXT,
    created_at    BIGINT NOT NULL,
    fanned_out_at BIGINT -- when its deliveries were made
);
CREATE INDEX events_new ON events (created_at, id) WHERE fanned_out_at IS NULL;
CREATE INDEX events_by_time ON events (created_at, id);
CREATE INDEX events_by_job ON events (job_id);
CREATE INDEX events_by_user ON events (user_id);

CREATE TABLE event_deliveries (
    id         TEXT PRIMARY KEY, -- the event's, and the device's or "webhook"
    event_id   TEXT NOT NULL REFERENCES events (id) ON DELETE CASCADE,
    channel    TEXT NOT NULL, -- webhook, platform_a or platform_b
    device_id  TEXT REFERENCES devices (id) ON DELETE CASCADE,
    state      TEXT NOT NULL, -- PENDING, DELIVERED or FAILED
    attempts   BIGINT NOT NULL,
    queued_at  BIGINT NOT NULL,
    due_at     BIGINT NOT NULL, -- of the next attempt
    ended_at   BIGINT,
    last_error TEXT
);
CREATE INDEX event_deliveries_due ON event_deliveries (channel, attempts, due_at) WHERE state = 'PENDING';
CREATE INDEX event_deliveries_by_event ON event_deliveries (event_id);
CREATE INDEX event_deliveries_by_device ON event_deliveries (device_id) WHERE device_id IS NOT NULL;
CREATE INDEX event_deliveries_failed ON event_deliveries (event_id) WHERE state = 'FAILED';

-- +goose Down
DROP TABLE event_deliveries;
DROP TABLE events;
DROP TABLE devices;
