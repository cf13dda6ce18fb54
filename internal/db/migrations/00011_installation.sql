-- Which installation this database belongs to. The bucket carries the same id,
-- so that a database and a bucket that were never meant for each other are not
-- taken for a pair, one of which lost the rows of the other's objects.

-- +goose Up
CREATE TABLE installation (
    single     INTEGER PRIMARY KEY CHECK (single = 1),
    id         TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

-- +goose Down
DROP TABLE installation;
