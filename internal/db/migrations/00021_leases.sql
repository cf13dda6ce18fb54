-- What one replica does for all: the lease of it, by name.

-- +goose Up
CREATE TABLE leases (
    id          TEXT PRIMARY KEY,
    lease_owner TEXT NOT NULL,
    lease_until BIGINT NOT NULL,
    fence       BIGINT NOT NULL
);

-- +goose Down
DROP TABLE leases;
