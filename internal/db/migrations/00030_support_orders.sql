-- What support needs for "I paid and got nothing": the receipts that were
-- refused, and orders that support paid out by hand.

-- +goose Up

-- Without the receipt itself. A row per order that a user presented in vain,
-- kept 90 days; the newest hundred of a user.
CREATE TABLE receipt_refusals (
    user_id    TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    platform   TEXT NOT NULL,
    order_id   TEXT NOT NULL,
    product_id TEXT NOT NULL,
    reason     TEXT NOT NULL, -- of the last attempt
    attempts   BIGINT NOT NULL,
    created_at BIGINT NOT NULL, -- the last attempt
    PRIMARY KEY (user_id, platform, order_id, product_id)
);
CREATE INDEX receipt_refusals_by_order ON receipt_refusals (order_id);
CREATE INDEX receipt_refusals_by_user ON receipt_refusals (user_id, created_at);
CREATE INDEX receipt_refusals_by_time ON receipt_refusals (created_at);

-- 1 for an order whose credits support granted: it is spent and can be reversed,
-- but counts in no revenue figure.
ALTER TABLE purchases ADD COLUMN by_support INTEGER NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE purchases DROP COLUMN by_support;
DROP TABLE receipt_refusals;
