-- Who paid, in the order of an index: what support granted for an order is no
-- purchase. purchases_sold stays for replicas of the release before and goes with
-- the next one. 00031_purchases_paid.sqlite.sql is the same for SQLite.

-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS purchases_paid; -- half made
CREATE INDEX CONCURRENTLY purchases_paid ON purchases (buyer_id) WHERE reversed_at IS NULL AND by_support = 0;
-- Ended renders that still keep their request.
DROP INDEX CONCURRENTLY IF EXISTS render_specs; -- half made
CREATE INDEX CONCURRENTLY render_specs ON render_jobs (user_id, finished_at) WHERE spec <> '' AND finished_at IS NOT NULL;

-- +goose Down
DROP INDEX render_specs;
DROP INDEX purchases_paid;
