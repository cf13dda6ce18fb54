package db

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"modernc.org/sqlite"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrate applies the missing migrations. If several replicas call it, one migrates and the others wait.
func (d *DB) Migrate(ctx context.Context) error {
	var opts []goose.ProviderOption
	if d.postgres {
		locker, err := lock.NewPostgresSessionLocker()
		if err != nil {
			return fmt.Errorf("migration lock: %w", err)
		}
		opts = append(opts, goose.WithSessionLocker(locker))
	}
	p, err := d.provider(opts...)
	if err != nil {
		return err
	}
	applied, err := p.Up(ctx)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if n := len(applied); n > 0 {
		d.log.Info("database migrated", "migrations", n, "version", applied[n-1].Source.Version)
	}
	return nil
}

func (d *DB) provider(opts ...goose.ProviderOption) (*goose.Provider, error) {
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	dialect, other := goose.DialectSQLite3, "*.postgres.sql"
	if d.postgres {
		dialect, other = goose.DialectPostgres, "*.sqlite.sql"
	}
	excluded, err := fs.Glob(dir, other)
	if err != nil {
		return nil, err
	}
	p, err := goose.NewProvider(dialect, d.pool, dir, append(opts, goose.WithVerbose(false), goose.WithExcludeNames(excluded))...)
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	return p, nil
}

// EnsureSchema is Migrate for a schema that is older than this program. It only reads any other schema, so it then
// needs no permission to change it.
func (d *DB) EnsureSchema(ctx context.Context) error {
	old := d.CheckSchema(ctx)
	if !errors.Is(old, errOldSchema) {
		return old
	}
	if err := d.Migrate(ctx); err != nil {
		return fmt.Errorf("%w with the role that owns the schema: %w", old, err)
	}
	return nil
}

var errOldSchema = errors.New("run `cutroom migrate`")

// CheckSchema returns an error unless the database has all migrations of this program. It only reads. A database with
// later migrations belongs to a newer program; this one still works on it.
func (d *DB) CheckSchema(ctx context.Context) error {
	p, err := d.provider()
	if err != nil {
		return err
	}
	sources := p.ListSources()
	want := sources[len(sources)-1].Version
	var have int64
	err = d.QueryRow(ctx, `SELECT COALESCE(MAX(version_id), 0) FROM goose_db_version`).Scan(&have)
	if isNoTable(err) {
		return fmt.Errorf("the database has no tables of cutroom: check DATABASE_URL, or %w", errOldSchema)
	}
	if err != nil {
		return fmt.Errorf("read the version of the schema: %w", err)
	}
	if have < want {
		return fmt.Errorf("the database's schema has version %d, but this program needs %d: %w", have, want, errOldSchema)
	}
	return nil
}

// isNoTable reports whether err means that a table does not exist.
func isNoTable(err error) bool {
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return pe.Code == "42P01"
	}
	var se *sqlite.Error
	return errors.As(err, &se) && strings.Contains(se.Error(), "no such table")
}
