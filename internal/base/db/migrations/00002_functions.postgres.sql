-- What PostgreSQL needs in addition to the tables. SQLite gets now_ms() from its driver.

-- +goose Up

-- clock_timestamp instead of now(), because a transaction that waited for a lock must see the current time. Rounded
-- down, because rounding up would put it ahead of every other clock.
CREATE FUNCTION now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

-- By default PostgreSQL vacuums a table only after a fifth of its rows, which may be millions, are dead. Free space in
-- each page keeps lease renewals, which happen every few seconds, from writing to the indexes.
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
