-- The last requests under each limit, so that a limit holds in every span of a
-- minute. rate_limits, which counted in fixed windows, stays for replicas of the
-- release before and goes with the next one.

-- +goose Up
CREATE TABLE request_times (
    bucket TEXT PRIMARY KEY,
    times  TEXT NOT NULL -- newest first, 13 digits of epoch milliseconds each
);

-- +goose Down
DROP TABLE request_times;
