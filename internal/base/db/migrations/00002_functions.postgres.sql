-- What PostgreSQL needs beside the tables. SQLite gets now_ms() from its driver.

-- +goose Up

-- clock_timestamp instead of now(), because a transaction that waited for a lock must see the current time. Rounded
-- down, because rounding up would put it ahead of every other clock.
CREATE FUNCTION now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

-- By default a fifth of a table is dead before it is vacuumed: millions of rows. Free space in each page keeps the
-- renewal of a lease, every few seconds, from writing to the indexes.
ALTER TABLE jobs SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_insert_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.01);
ALTER TABLE separations SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.01);
ALTER TABLE renders SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.01);
ALTER TABLE separation_stems SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.01);
ALTER TABLE credit_ledger SET (autovacuum_vacuum_insert_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.01);
ALTER TABLE users SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
ALTER TABLE credit_balances SET (fillfactor = 80);
ALTER TABLE request_times SET (fillfactor = 50);
ALTER TABLE render_turns SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.01);
