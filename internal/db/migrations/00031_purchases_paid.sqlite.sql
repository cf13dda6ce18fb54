-- As in 00031_purchases_paid.postgres.sql.

-- +goose Up
CREATE INDEX purchases_paid ON purchases (buyer_id) WHERE reversed_at IS NULL AND by_support = 0;
-- Ended renders that still keep their request.
CREATE INDEX render_specs ON render_jobs (user_id, finished_at) WHERE spec <> '' AND finished_at IS NOT NULL;

-- +goose Down
DROP INDEX render_specs;
DROP INDEX purchases_paid;
