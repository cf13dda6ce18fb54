// Package dbtest gives each test its own database, on SQLite, PostgreSQL or both.
//
// On first use it starts a private PostgreSQL cluster for the test process, from the installed binaries. The cluster
// uses TLS because the service requires it. Each database is a copy of a migrated template. Command withpg starts one
// cluster and template for all packages of a `go test ./...`, and names them in CUTROOM_TEST_PG_URL and
// CUTROOM_TEST_PG_TEMPLATE.
//
// The package depends on the service's migrations, and on nothing else of the service.
package dbtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"cutroom/internal/base/db"
)

// EnvURL names the variable that holds the address of a running cluster,
// postgres://user:password@host:port/postgres?sslmode=require. The user must be allowed to create databases.
const EnvURL = "CUTROOM_TEST_PG_URL"

// EnvTemplate names the variable that holds the name of a migrated database in that cluster. Without it, every process
// migrates its own template.
const EnvTemplate = "CUTROOM_TEST_PG_TEMPLATE"

// server is a cluster with a migrated template.
type server struct {
	cluster  *Cluster // nil if another process started it
	url      *url.URL
	template string
}

// shared returns the process's cluster, and keeps it reachable, because a garbage-collected pipe to its supervisor
// would stop it. When the process ends, the pipe closes and the cluster removes itself.
var shared = sync.OnceValues(func() (s server, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	address := os.Getenv(EnvURL)
	if address == "" {
		if s.cluster, err = Start(ctx); err != nil {
			return s, err
		}
		address = s.cluster.URL
	}
	if s.url, err = parse(address); err != nil {
		return s, err
	}
	if s.template = os.Getenv(EnvTemplate); s.template == "" {
		s.template, err = MakeTemplate(ctx, address)
	}
	return s, err
})

// Each runs a test on SQLite and on PostgreSQL.
func Each(t *testing.T, test func(t *testing.T, d *db.DB)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { test(t, SQLite(t)) })
	t.Run("postgres", func(t *testing.T) { test(t, Postgres(t)) })
}

// EachParallel is Each in parallel with other tests.
func EachParallel(t *testing.T, test func(t *testing.T, d *db.DB)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); test(t, SQLite(t)) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); test(t, Postgres(t)) })
}

// SQLite opens a copy of a migrated database file, and removes it after the test.
func SQLite(t testing.TB) *db.DB {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.db")
	SQLiteFile(t, path)
	return open(t, db.Options{URL: "sqlite://" + path, MaxPool: 8})
}

// SQLiteFile writes a migrated database to a new file.
func SQLiteFile(t testing.TB, path string) {
	t.Helper()
	content, err := sqliteTemplate()
	if err != nil {
		t.Fatalf("SQLite for tests: %v", err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// sqliteTemplate returns the content of a migrated database. Each process creates it once.
var sqliteTemplate = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "cutroom-sqlite-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a leftover temporary folder does no harm
	path := filepath.Join(dir, "template.db")
	if err := migrate(context.Background(), db.Options{URL: "sqlite://" + path, MaxPool: 1}); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// Postgres opens the database of [URL].
func Postgres(t testing.TB) *db.DB {
	t.Helper()
	address, user, password := URL(t)
	return open(t, db.Options{URL: address, User: user, Password: password, MaxPool: 8})
}

// Open opens a database until the test ends, and migrates it.
func Open(t testing.TB, o db.Options) *db.DB {
	t.Helper()
	d := open(t, o)
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

func open(t testing.TB, o db.Options) *db.DB {
	t.Helper()
	d, err := db.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() }) // fails if the test has closed it
	return d
}

// Exec runs a statement.
func Exec(t testing.TB, d *db.DB, query string, args ...any) {
	t.Helper()
	if _, err := d.Exec(context.WithoutCancel(t.Context()), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// Number runs a query that returns one number.
func Number(t testing.TB, d *db.DB, query string, args ...any) (n int64) {
	t.Helper()
	if err := d.QueryRow(context.WithoutCancel(t.Context()), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// Notifier receives a database's notifications until the test ends. It returns as soon as no notification can be
// missed.
func Notifier(t testing.TB, d *db.DB, clients, workers bool) {
	t.Helper()
	connected, stop := d.Listen("connected") // the connection wakes every listener
	defer stop()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = d.RunNotifier(ctx, clients, workers) }) // ends only with ctx
	t.Cleanup(func() { cancel(); running.Wait() })
	if d.Postgres() {
		<-connected
	}
}

// Notify notifies the listeners of topics.
func Notify(t testing.TB, d *db.DB, topics ...string) {
	t.Helper()
	if err := d.InTx(t.Context(), func(tx *db.Tx) error { return tx.Notify(t.Context(), topics...) }); err != nil {
		t.Fatal(err)
	}
}

// Plan returns the steps of a query's plan. settings are statements that PostgreSQL runs first, because by default it
// scans small tables instead of using an index.
func Plan(t testing.TB, d *db.DB, settings, query string, args ...any) (steps []string) {
	t.Helper()
	explain, before := `EXPLAIN QUERY PLAN `, []any{new(int), new(int), new(int)}
	if d.Postgres() {
		explain, before = `EXPLAIN `, nil
	}
	err := d.InTx(t.Context(), func(tx *db.Tx) (err error) {
		if d.Postgres() && settings != "" {
			if _, err := tx.Exec(t.Context(), settings); err != nil {
				return err
			}
		}
		steps, err = db.All(t.Context(), tx, func(row db.Scanner) (step string, err error) {
			err = row.Scan(append(before, &step)...)
			return step, err
		}, explain+query, args...)
		return err
	})
	if err != nil {
		t.Fatalf("explain %s: %v", query, err)
	}
	return steps
}

// URL creates a migrated database that is dropped when the test ends. The address has no credentials; user and password
// belong to the database's owner, who is not a superuser. If PostgreSQL is not installed, the test fails.
func URL(t testing.TB) (address, user, password string) {
	t.Helper()
	return create(t, true)
}

// Empty is URL without the migrations.
func Empty(t testing.TB) (address, user, password string) {
	t.Helper()
	return create(t, false)
}

// RowsOnly is URL with a role that owns nothing and can only read and write rows. grants are the statements that grant
// these rights, with %s for the role's name.
func RowsOnly(t testing.TB, grants string) (address, user, password string) {
	t.Helper()
	address, owner, password := URL(t)
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(owner, password)
	user = "rows_" + random(6)
	for _, sql := range []string{fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s'", user, password), strings.ReplaceAll(grants, "%s", user)} {
		if err := adminExec(u, sql); err != nil {
			t.Fatalf("make a role: %v", err)
		}
	}
	t.Cleanup(func() { // before the database, which refers to the role, is dropped
		if err := adminExec(u, "GRANT "+user+" TO CURRENT_USER; DROP OWNED BY "+user+"; DROP ROLE "+user); err != nil {
			t.Logf("the role stays until the cluster ends: %v", err)
		}
	})
	return address, user, password
}

func create(t testing.TB, migrated bool) (address, user, password string) {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatalf("PostgreSQL for tests: %v", err)
	}
	name, template := "t_"+random(8), "template0"
	if migrated {
		template = s.template
	}
	// Copying files takes half the time of the default strategy, which logs every page.
	if err := adminExec(s.url, fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s STRATEGY file_copy", name, template)); err != nil {
		t.Fatalf("create database: %v", err)
	}
	t.Cleanup(func() {
		// FORCE: a service that was killed may still hold connections.
		if err := adminExec(s.url, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
			t.Logf("the database stays until the cluster ends: %v", err)
		}
	})
	password, _ = s.url.User.Password()
	return addressOf(s.url, name), s.url.User.Username(), password
}

func parse(cluster string) (*url.URL, error) {
	u, err := url.Parse(cluster)
	if err != nil || u.User == nil {
		return nil, fmt.Errorf("%s is not postgres://user:password@host:port/postgres?sslmode=require", EnvURL)
	}
	return u, nil
}

// MakeTemplate creates a migrated database in a cluster and returns its name.
func MakeTemplate(ctx context.Context, cluster string) (name string, err error) {
	u, err := parse(cluster)
	if err != nil {
		return "", err
	}
	name = "template_" + random(8)
	if err := adminExec(u, "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		return "", fmt.Errorf("create the template: %w", err)
	}
	password, _ := u.User.Password()
	err = migrate(ctx, db.Options{URL: addressOf(u, name), User: u.User.Username(), Password: password, MaxPool: 2})
	if err != nil {
		return "", fmt.Errorf("migrate the template: %w", err)
	}
	return name, nil
}

// migrate migrates a database and closes it.
func migrate(ctx context.Context, o db.Options) error {
	d, err := db.Open(ctx, o)
	if err != nil {
		return err
	}
	return errors.Join(d.Migrate(ctx), d.Close())
}

// addressOf returns the address of a database in the cluster, without credentials.
func addressOf(cluster *url.URL, name string) string {
	u := *cluster
	u.User = nil
	u.Path = "/" + name
	return u.String()
}

func adminExec(u *url.URL, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	return execute(ctx, u.String(), sql)
}

// execute runs one statement on a new connection.
func execute(ctx context.Context, address, sql string) error {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
