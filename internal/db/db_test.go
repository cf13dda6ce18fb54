package db_test

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"cutroom/internal/db"
)

func open(t *testing.T, url string) *db.DB {
	t.Helper()
	d, err := db.Open(t.Context(), db.Options{URL: url, MaxPool: 5})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestSQLiteMigratesTwiceAndKeepsTime(t *testing.T) {
	for _, url := range []string{"sqlite::memory:", "sqlite://" + filepath.Join(t.TempDir(), "a b", "x.db")} {
		d := open(t, url)
		if err := d.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		var ms int64
		if err := d.QueryRow(t.Context(), `SELECT now_ms()`).Scan(&ms); err != nil {
			t.Fatal(err)
		}
		if diff := time.Since(time.UnixMilli(ms)); diff < -time.Second || diff > time.Minute {
			t.Errorf("%s: now_ms is %v away", url, diff)
		}
	}
}

func TestNotifyRingsAfterCommitOnly(t *testing.T) {
	d := open(t, "sqlite::memory:")
	wake, stop := d.Listen("render")
	defer stop()
	fail := context.Canceled
	if err := d.InTx(t.Context(), func(tx *db.Tx) error {
		if err := tx.Notify(t.Context(), "render"); err != nil {
			return err
		}
		return fail
	}); err != fail {
		t.Fatal(err)
	}
	select {
	case <-wake:
		t.Fatal("rung by a transaction that was rolled back")
	default:
	}
	if err := d.InTx(t.Context(), func(tx *db.Tx) error { return tx.Notify(t.Context(), "render") }); err != nil {
		t.Fatal(err)
	}
	select {
	case <-wake:
	case <-time.After(5 * time.Second):
		t.Fatal("not rung")
	}
}

func TestForeignKeyIsRecognised(t *testing.T) {
	d := open(t, "sqlite::memory:")
	_, err := d.Exec(t.Context(), `INSERT INTO credit_balances (user_id, balance) VALUES ('nobody', 1)`)
	if !db.IsForeignKey(err) {
		t.Errorf("IsForeignKey(%v) = false", err)
	}
}

func TestConcurrentTransactionsOnAFileLoseNothing(t *testing.T) {
	d := open(t, "sqlite://"+filepath.Join(t.TempDir(), "x.db"))
	if _, err := d.Exec(t.Context(), `INSERT INTO nodes (id, seen_at) VALUES ('n', 0)`); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				err := d.InTx(t.Context(), func(tx *db.Tx) error {
					var n int64
					if err := tx.QueryRow(t.Context(), `SELECT seen_at FROM nodes WHERE id = 'n'`).Scan(&n); err != nil {
						return err
					}
					_, err := tx.Exec(t.Context(), `UPDATE nodes SET seen_at = $1 WHERE id = 'n'`, n+1)
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	var n int64
	if err := d.QueryRow(t.Context(), `SELECT seen_at FROM nodes`).Scan(&n); err != nil || n != 80 {
		t.Fatalf("n = %d, err %v; want 80", n, err)
	}
}

func TestLowerFoldsMoreThanASCII(t *testing.T) {
	d := open(t, "sqlite::memory:")
	var s string
	if err := d.QueryRow(t.Context(), `SELECT lower('ÜMIT Ž')`).Scan(&s); err != nil || s != "ümit ž" {
		t.Errorf("lower gives %q, %v", s, err)
	}
}

// What is wrong with an address is named, and nothing of it that may be secret.
func TestAnAddressThatIsNotValidIsExplained(t *testing.T) {
	for address, want := range map[string]string{
		"postgres://u:secret@h/d?sslmode=verify-full&sslrootcert=/nowhere/ca.crt": "DATABASE_URL: sslrootcert: open /nowhere/ca.crt: no such file or directory",
		"postgres://u:secret@h/d?sslmode=perhaps":                                 "DATABASE_URL: a parameter is not valid (host, port, sslmode), or a file of sslrootcert, sslcert or sslkey holds no PEM",
		"postgres://u:secret@h:port/d":                                            "DATABASE_URL is not a valid PostgreSQL address",
	} {
		if _, err := db.Open(t.Context(), db.Options{URL: address}); err == nil || err.Error() != want {
			t.Errorf("%s: %v", address, err)
		}
	}
}
