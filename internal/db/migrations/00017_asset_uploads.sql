-- Uploads of assets in parts that were begun: whose they are, and under what id
-- the store knows them. Which parts have come, only the store knows.

-- +goose Up
CREATE TABLE asset_uploads (
    id           TEXT PRIMARY KEY,
    user_id      TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    asset_key    TEXT NOT NULL,
    size_bytes   BIGINT NOT NULL,
    store_id     TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    completed_at BIGINT, -- when the object was there, and was looked at
    UNIQUE (user_id, asset_key, size_bytes)
);
CREATE INDEX asset_uploads_by_age ON asset_uploads (created_at);

-- +goose Down
DROP TABLE asset_uploads;
