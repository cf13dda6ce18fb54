-- +goose Up

-- The kinds of jobs whose submission an operator has paused.
CREATE TABLE pauses (
    kind       TEXT PRIMARY KEY,
    created_at BIGINT NOT NULL
);

-- +goose Down
DROP TABLE pauses;
