-- As in 00031_purchases_paid.postgres.sql.

-- +goose Up
CREATE INDEX purchases_paid ON purchases (buyer_id) WHERE reversed_at IS NULL AND by_support = 0;

-- +goose Down
DROP INDEX purchases_paid;
