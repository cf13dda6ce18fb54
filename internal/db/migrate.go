package db

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

// nowMs gives PostgreSQL the clock that SQLite has from the driver. It is
// clock_timestamp, not now(): a transaction that waited for a lock must see
// the time at which it goes on.
const nowMs = `CREATE OR REPLACE FUNCTION now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint $$`

// Migrate applies all migrations that the database does not have yet. Replicas
// may call it at the same time: one works and the others wait.
func (d *DB) Migrate(ctx context.Context) error {
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	dialect := goose.DialectSQLite3
	opts := []goose.ProviderOption{goose.WithVerbose(false)}
	if d.postgres {
		dialect = goose.DialectPostgres
		locker, err := lock.NewPostgresSessionLocker()
		if err != nil {
			return fmt.Errorf("migration lock: %w", err)
		}
		opts = append(opts, goose.WithSessionLocker(locker))
		if err := d.InTx(ctx, func(tx *Tx) error {
			if err := tx.Lock(ctx, "now_ms"); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, nowMs)
			return err
		}); err != nil {
			return fmt.Errorf("create now_ms: %w", err)
		}
	}
	p, err := goose.NewProvider(dialect, d.pool, dir, opts...)
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}
