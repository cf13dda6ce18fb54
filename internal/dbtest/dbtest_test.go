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

func TestEachTestHasItsOwnMigratedDatabase(t *testing.T) {
	for range 2 {
		dbtest.Each(t, func(t *testing.T, d *db.DB) {
			// Fails if two tests share a database, or if it is not migrated.
			if _, err := d.Exec(t.Context(), `CREATE TABLE mine AS SELECT id FROM users`); err != nil {
				t.Error(err)
			}
			if !d.Postgres() {
				return
			}
			var tls bool
			if err := d.QueryRow(t.Context(), `SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()`).Scan(&tls); err != nil || !tls {
				t.Errorf("connection without TLS: %v, %v", tls, err)
			}
		})
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
