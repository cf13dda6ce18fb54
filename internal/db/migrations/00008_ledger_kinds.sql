-- The ledger learns two kinds: what support gives or takes back, and purchases
-- that a store refunded or revoked. SQLite cannot change a CHECK, so the table
-- is made anew; nothing refers to it.

-- +goose Up
CREATE TABLE credit_ledger_new (
    ref_id      TEXT PRIMARY KEY,
    user_id     TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    kind        TEXT NOT NULL CHECK (kind IN ('signup', 'purchase', 'admin', 'consume', 'refund', 'support', 'reversal')),
    amount      BIGINT NOT NULL,
    created_at  BIGINT NOT NULL
);
INSERT INTO credit_ledger_new SELECT ref_id, user_id, kind, amount, created_at FROM credit_ledger;
DROP TABLE credit_ledger;
ALTER TABLE credit_ledger_new RENAME TO credit_ledger;
CREATE INDEX credit_ledger_by_user ON credit_ledger (user_id, kind, created_at);

-- The store's order number, for support, as long as its buyer has an account:
-- whoever erases the account clears it. Grants made before this column have
-- none; their ledger entry names it.
ALTER TABLE purchases ADD COLUMN order_id TEXT CHECK (order_id IS NULL OR buyer_id IS NOT NULL);
CREATE INDEX purchases_by_order ON purchases (order_id);
-- When the store took the purchase back, and how many of its credits had been
-- spent by then and not been settled since.
ALTER TABLE purchases ADD COLUMN reversed_at BIGINT;
ALTER TABLE purchases ADD COLUMN owed BIGINT NOT NULL DEFAULT 0 CHECK (owed >= 0);

-- +goose Down
-- Fails while there are entries of the new kinds: without them the balances
-- would no longer be the sum of the ledger.
CREATE TABLE credit_ledger_old (
    ref_id      TEXT PRIMARY KEY,
    user_id     TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    kind        TEXT NOT NULL CHECK (kind IN ('signup', 'purchase', 'admin', 'consume', 'refund')),
    amount      BIGINT NOT NULL,
    created_at  BIGINT NOT NULL
);
INSERT INTO credit_ledger_old SELECT ref_id, user_id, kind, amount, created_at FROM credit_ledger;
DROP TABLE credit_ledger;
ALTER TABLE credit_ledger_old RENAME TO credit_ledger;
CREATE INDEX credit_ledger_by_user ON credit_ledger (user_id, kind, created_at);
DROP INDEX purchases_by_order;
ALTER TABLE purchases DROP COLUMN order_id;
ALTER TABLE purchases DROP COLUMN reversed_at;
ALTER TABLE purchases DROP COLUMN owed;
