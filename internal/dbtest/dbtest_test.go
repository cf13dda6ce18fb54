package dbtest_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"cutroom/internal/db"
	"cutroom/internal/dbtest"
)

func open(t *testing.T, address, user, password string) (*db.DB, error) {
	t.Helper()
	d, err := db.Open(t.Context(), db.Options{URL: address, User: user, Password: password, MaxPool: 2})
	if err == nil {
		t.Cleanup(func() { _ = d.Close() })
	}
	return d, err
}

func TestEachTestHasItsOwnMigratedDatabase(t *testing.T) {
	first, user, password := dbtest.URL(t)
	second, _, _ := dbtest.URL(t)
	for _, address := range []string{first, second} {
		d, err := open(t, address, user, password)
		if err != nil {
			t.Fatal(err)
		}
		// Fails if both tests share a database.
		if _, err := d.Exec(t.Context(), `CREATE TABLE mine (x int)`); err != nil {
			t.Error(err)
		}
		var tables int
		if err := d.QueryRow(t.Context(), `SELECT count(*) FROM goose_db_version`).Scan(&tables); err != nil || tables == 0 {
			t.Errorf("not migrated: %d, %v", tables, err)
		}
		var tls bool
		if err := d.QueryRow(t.Context(), `SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()`).Scan(&tls); err != nil || !tls {
			t.Errorf("connection without TLS: %v, %v", tls, err)
		}
	}
}

func TestEachSQLiteTestHasItsOwnMigratedDatabase(t *testing.T) {
	for range 2 {
		d := dbtest.SQLite(t)
		// Fails if both tests share a database, or if it is not migrated.
		if _, err := d.Exec(t.Context(), `CREATE TABLE mine AS SELECT id FROM users`); err != nil {
			t.Error(err)
		}
	}
}

func TestEmptyHasNoTables(t *testing.T) {
	address, user, password := dbtest.Empty(t)
	d, err := open(t, address, user, password)
	if err != nil {
		t.Fatal(err)
	}
	var tables int
	if err := d.QueryRow(t.Context(), `SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'`).Scan(&tables); err != nil || tables != 0 {
		t.Errorf("%d tables, %v", tables, err)
	}
}

func TestWrongPasswordAndPlainTextAreRefused(t *testing.T) {
	address, user, password := dbtest.URL(t)
	if _, err := open(t, address, user, password+"x"); err == nil {
		t.Error("a wrong password was accepted")
	}
	if _, err := open(t, strings.Replace(address, "sslmode=require", "sslmode=disable", 1), user, password); err == nil {
		t.Error("a connection without TLS was accepted")
	}
}

func TestStoppedClusterLeavesNoProcess(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := dbtest.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	port := strings.Split(strings.Split(c.URL, "@127.0.0.1:")[1], "/")[0]
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(ctx, "bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/"+port).CombinedOutput(); err == nil {
		t.Errorf("port %s still answers: %s", port, out)
	}
}
