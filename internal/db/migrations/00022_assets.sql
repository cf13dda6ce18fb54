-- Uploaded assets, and whose they are. An asset belongs to every account that asked
-- for its upload or used it. An object without a row in assets is from an earlier
-- release: the bucket's lifecycle rule ends it.

-- +goose Up
CREATE TABLE assets (
    asset_key     TEXT PRIMARY KEY,
    size_bytes    BIGINT NOT NULL, -- as announced, until the object is seen
    content_type  TEXT NOT NULL,
    seen_at       BIGINT,          -- when the object was last seen in the bucket
    verified      TEXT,            -- size and ETag of the object whose bytes were hashed and fit the key
    -- The sweep sets removing_at before it deletes an object that nobody holds, and
    -- raises removals: a hold that began with an older look at the object is refused.
    removing_at   BIGINT,
    given_up_at   BIGINT,          -- when the sweep first did so
    removal_at    BIGINT,          -- when the sweep deletes the object again
    removals      BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX assets_by_sight ON assets (COALESCE(seen_at, 0));

CREATE TABLE asset_holders (
    user_id      TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    asset_key    TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    last_used_at BIGINT NOT NULL,
    given_up_at  BIGINT, -- the account gave the asset up, which counts for it until the object is erased
    PRIMARY KEY (user_id, asset_key)
);
CREATE INDEX asset_holders_by_key ON asset_holders (asset_key);
CREATE INDEX asset_holders_history ON asset_holders (user_id, created_at, asset_key);
CREATE INDEX asset_holders_by_use ON asset_holders (last_used_at);
CREATE INDEX asset_holders_given_up ON asset_holders (given_up_at) WHERE given_up_at IS NOT NULL;

-- +goose Down
DROP TABLE asset_holders;
DROP TABLE assets;
