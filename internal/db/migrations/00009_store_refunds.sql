-- +goose Up
-- When the store was last asked whether a purchase still stands; 0 asks at once,
-- null counts as the time of the purchase.
ALTER TABLE purchases ADD COLUMN asked_at BIGINT;
CREATE INDEX purchases_to_ask ON purchases (platform, created_at) WHERE reversed_at IS NULL AND order_id IS NOT NULL;

-- Who has had the signup bonus in an account that was deleted since: a keyed
-- hash of provider and subject, and nothing else.
CREATE TABLE bonus_identities (
    identity_hash TEXT PRIMARY KEY,
    created_at    BIGINT NOT NULL
);

-- Keys of our own that outlive the secrets of the configuration: the same key,
-- sealed under each secret that it is to be opened with.
CREATE TABLE sealed_keys (
    name       TEXT NOT NULL,
    sealed     TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (name, sealed)
);

-- +goose Down
DROP TABLE sealed_keys;
DROP TABLE bonus_identities;
DROP INDEX purchases_to_ask;
ALTER TABLE purchases DROP COLUMN asked_at;
