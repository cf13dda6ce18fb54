package db_test

import (
	"database/sql"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"cutroom/internal/db"
	"cutroom/internal/dbtest"
)

// migrated opens a database of each kind, with every migration, and what applies single
// ones to it.
func migrated(t *testing.T, test func(t *testing.T, d *db.DB, p *goose.Provider)) {
	open := func(t *testing.T, o db.Options, dialect goose.Dialect, other string, pool *sql.DB) {
		t.Cleanup(func() { pool.Close() })
		files := fstest.MapFS{}
		names, err := filepath.Glob("migrations/*.sql")
		for _, name := range names {
			text, rerr := os.ReadFile(name)
			if rerr != nil {
				t.Fatal(rerr)
			}
			if !strings.HasSuffix(name, other) {
				files[filepath.Base(name)] = &fstest.MapFile{Data: text, Mode: fs.ModePerm}
			}
		}
		d := dbtest.Open(t, o)
		p, perr := goose.NewProvider(dialect, pool, files)
		if err != nil || perr != nil {
			t.Fatal(err, perr)
		}
		test(t, d, p)
	}
	t.Run("sqlite", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "test.db")
		pool, err := sql.Open("sqlite", "file:"+file)
		if err != nil {
			t.Fatal(err)
		}
		open(t, db.Options{URL: "sqlite://" + file, MaxPool: 2}, goose.DialectSQLite3, ".postgres.sql", pool)
	})
	t.Run("postgres", func(t *testing.T) {
		url, user, password := dbtest.URL(t)
		config, err := pgx.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		config.User, config.Password = user, password
		open(t, db.Options{URL: url, User: user, Password: password, MaxPool: 2}, goose.DialectPostgres, ".sqlite.sql", stdlib.OpenDB(*config))
	})
}

// Jobs that were there before the table of turns have their place in it.
func TestJobsOfEarlierReleasesGetTurns(t *testing.T) {
	migrated(t, func(t *testing.T, d *db.DB, p *goose.Provider) {
		ctx := t.Context()
		job := func(id, owner, state string, created int, started any) {
			t.Helper()
			dbtest.Exec(t, d, `INSERT INTO render_jobs (id, user_id, state, spec, output_kind, created_at, started_at)
				VALUES ($1, $2, $3, '', 'video', $4, $5)`, id, owner, state, created, started)
		}
		if _, err := p.ApplyVersion(ctx, 45, false); err != nil {
			t.Fatal(err)
		}
		for _, owner := range []string{"ended", "new", "waits", "works"} {
			dbtest.Exec(t, d, `INSERT INTO users (id, provider, provider_sub, created_at, last_active_at) VALUES ($1, 'p', $1, 1, 1)`, owner)
		}
		job("a", "ended", "COMPLETED", 1, 11)
		job("b", "ended", "FAILED", 2, 12)
		job("c", "waits", "COMPLETED", 3, 13)
		job("e", "waits", "PENDING", 4, nil)
		job("d", "waits", "PENDING", 4, nil)
		job("f", "waits", "PENDING", 5, 10)
		job("g", "works", "PROCESSING", 6, 14)
		job("h", "works", "PROCESSING", 7, 15)
		if _, err := p.ApplyVersion(ctx, 45, true); err != nil {
			t.Fatal(err)
		}
		job("i", "works", "PENDING", 8, nil)
		got, err := db.Texts(d.Query(ctx, `SELECT user_id || ' ' || processing || ' ' || last_started_at || ' ' || COALESCE(next_job_id, '-')
			|| ' ' || COALESCE(next_created_at, 0) FROM render_turns ORDER BY user_id`))
		if want := "ended 0 12 - 0, waits 0 13 d 4, works 2 15 i 8"; err != nil || strings.Join(got, ", ") != want {
			t.Errorf("turns %v, %v, want %s", got, err, want)
		}
	})
}
