// Tests of what this package promises on both databases: notifications, locks, deadlocks, outages, reserved connections
// and certificates.

package db_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/testkit/dbtest"
)

func open(t *testing.T, url string) *db.DB {
	t.Helper()
	return dbtest.Open(t, db.Options{URL: url, MaxPool: 5})
}

func TestSQLite(t *testing.T) {
	d := open(t, "sqlite://"+filepath.Join(t.TempDir(), "a b", "x.db"))
	if err := d.Migrate(t.Context()); err != nil { // again
		t.Fatal(err)
	}
	var ms int64
	var folded string
	if err := d.QueryRow(t.Context(), `SELECT now_ms(), lower('ÜMIT Ž')`).Scan(&ms, &folded); err != nil || folded != "ümit ž" {
		t.Errorf("lower gives %q, %v", folded, err)
	}
	if away := time.Since(time.UnixMilli(ms)); away.Abs() > time.Minute {
		t.Errorf("now_ms is %v away", away)
	}
	if _, err := d.Exec(t.Context(), `INSERT INTO credit_balances (user_id, balance) VALUES ('nobody', 1)`); !db.IsForeignKey(err) {
		t.Errorf("IsForeignKey(%v) = false", err)
	}
}

func eachDatabase(t *testing.T, test func(t *testing.T, d *db.DB)) {
	t.Run("memory", func(t *testing.T) { test(t, open(t, "sqlite::memory:")) })
	t.Run("file", func(t *testing.T) { test(t, open(t, "sqlite://"+filepath.Join(t.TempDir(), "x.db"))) })
	t.Run("postgres", func(t *testing.T) { test(t, postgres(t, 4)) })
}

// postgres opens a database with so many connections.
func postgres(t *testing.T, connections int) *db.DB {
	t.Helper()
	address, user, password := dbtest.URL(t)
	return dbtest.Open(t, db.Options{URL: address, User: user, Password: password, MaxPool: connections})
}

// createCounters creates a table for tests.
func createCounters(t *testing.T, d *db.DB) {
	t.Helper()
	dbtest.Exec(t, d, `CREATE TABLE counters (id TEXT PRIMARY KEY, seen_at BIGINT NOT NULL)`)
}

func TestNotificationsFollowCommitsThatTouchedARow(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *db.DB) {
		createCounters(t, d)
		dbtest.Notifier(t, d, true, true)
		wake, stop := d.Listen("counters")
		defer stop()
		later, stop := d.Listen("later")
		defer stop()
		touch := func(want int64) {
			t.Helper()
			n, err := d.ExecNotify(t.Context(), "counters", `UPDATE counters SET seen_at = $2 WHERE id = $1`, "n", 7)
			if err != nil || n != want {
				t.Fatalf("%d rows, %v, want %d", n, err, want)
			}
		}
		touch(0)
		undone := errors.New("undone")
		if err := d.InTx(t.Context(), func(tx *db.Tx) error { return errors.Join(tx.Notify(t.Context(), "counters"), undone) }); !errors.Is(err, undone) {
			t.Error(err)
		}
		dbtest.Notify(t, d, "later")
		<-later
		if len(wake) > 0 {
			t.Error("rung for nothing")
		}
		dbtest.Exec(t, d, `INSERT INTO counters (id, seen_at) VALUES ('n', 1)`)
		touch(1)
		<-wake
	})
}

// A replica that answers no client is not woken by what clients wait for.
func TestWorkersHearOfWorkAlone(t *testing.T) {
	d := postgres(t, 2)
	dbtest.Notifier(t, d, false, true)
	work, stop := d.Listen(db.ForWorkers + "queue")
	defer stop()
	client, stop := d.Listen("job")
	defer stop()
	dbtest.Notify(t, d, "job", db.ForWorkers+"queue")
	<-work
	if len(client) > 0 {
		t.Error("a worker heard of a job's change")
	}
}

// A rule across rows holds for transactions that count under a lock.
func TestLockedTransactionsSeeEachOther(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *db.DB) {
		createCounters(t, d)
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for k := range 8 {
					err := d.InTx(t.Context(), func(tx *db.Tx) error {
						var n int
						err := tx.Lock(t.Context(), "counters")
						if err == nil {
							err = tx.QueryRow(t.Context(), `SELECT COUNT(*) FROM counters`).Scan(&n)
						}
						if err == nil && n < 50 {
							_, err = tx.Exec(t.Context(), `INSERT INTO counters (id, seen_at) VALUES ($1, 1)`, fmt.Sprint("n", i, k))
						}
						return err
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if n := dbtest.Number(t, d, `SELECT COUNT(*) FROM counters`); n != 50 {
			t.Errorf("%d of 50", n)
		}
	})
}

// PostgreSQL aborts one of two writers that wait for each other. It runs again, also if it is a single statement.
func TestWritersRunAgainAfterADeadlock(t *testing.T) {
	d := postgres(t, 4)
	createCounters(t, d)
	dbtest.Exec(t, d, `INSERT INTO counters (id, seen_at) VALUES ('a', 0), ('b', 0)`)
	statement, ended := sync.Once{}, make(chan error, 1)
	err := d.InTx(t.Context(), func(tx *db.Tx) error {
		if _, err := tx.Exec(t.Context(), `UPDATE counters SET seen_at = seen_at + 1 WHERE id = 'a'`); err != nil {
			return err
		}
		statement.Do(func() {
			go func() {
				_, err := d.Exec(t.Context(), `WITH b AS (UPDATE counters SET seen_at = seen_at + 1 WHERE id = 'b' RETURNING seen_at)
					UPDATE counters SET seen_at = counters.seen_at + 1 FROM b WHERE id = 'a'`)
				ended <- err
			}()
		})
		// It waits first, so it is the first to look for a deadlock. Use another connection, because a transaction
		// reads pg_stat_activity only once.
		for waiting := 0; waiting == 0 && len(ended) == 0; {
			if err := d.QueryRow(t.Context(), `SELECT COUNT(*) FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting); err != nil {
				return err
			}
		}
		_, err := tx.Exec(t.Context(), `UPDATE counters SET seen_at = seen_at + 1 WHERE id = 'b'`)
		return err
	})
	if err := errors.Join(err, <-ended); err != nil {
		t.Error(err)
	}
	if n := dbtest.Number(t, d, `SELECT COUNT(*) FROM counters WHERE seen_at = 2`); n != 2 {
		t.Errorf("%d of 2 counters have both updates", n)
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

type observer struct {
	chain   []*x509.Certificate
	refused bool
}

func (*observer) Failed() {}

func (o *observer) SawCertificate(chain []*x509.Certificate, refused bool) {
	o.chain, o.refused = chain, refused
}

// Operators learn when the server's certificate expires, also if connections are refused because of it.
func TestCertificatesAreRecorded(t *testing.T) {
	address, user, password := dbtest.URL(t)
	for mode, refused := range map[string]bool{"require": false, "verify-full": true} { // the test server signs its own
		var seen observer
		d, err := db.Open(t.Context(), db.Options{URL: strings.Replace(address, "sslmode=require", "sslmode="+mode, 1),
			User: user, Password: password, MaxPool: 1, Observer: &seen})
		if err == nil {
			err = d.Close()
		}
		if (err != nil) != refused || len(seen.chain) != 1 || seen.refused != refused {
			t.Errorf("%s: %v, %+v", mode, err, seen)
		}
	}
}

// A read that gets no answer ends in time.
func TestReadsEndWithTheirTime(t *testing.T) {
	d := postgres(t, 4)
	createCounters(t, d)
	err := d.InTx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `LOCK TABLE counters IN ACCESS EXCLUSIVE MODE`)
		var asked sync.WaitGroup
		for range 20 { // more than there are connections
			asked.Go(func() {
				began := time.Now()
				_, err := db.Texts(d.Query(db.WithLimit(t.Context(), 500*time.Millisecond), `SELECT id FROM counters`))
				if took := time.Since(began); !errors.Is(err, db.ErrUnavailable) || took > 30*time.Second {
					t.Errorf("after %v: %v", took, err)
				}
			})
		}
		asked.Wait()
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// The service answers 503 and hands jobs back if the server is to blame, but not if the statement or its caller is.
func TestTheServersFaultsAreUnavailability(t *testing.T) {
	d := postgres(t, 2)
	raise := func(code string) error {
		_, err := d.Exec(t.Context(), `DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '`+code+`'; END $$`)
		return err
	}
	for code, want := range map[string]bool{"57014": true, "57P01": true, "55P03": true, "25P03": true, "25006": true, "53100": true, "53200": true,
		"53300": true, "58030": true, "08006": true, "23505": false, "22012": false, "42P01": false, "25P02": false} {
		if err := raise(code); err == nil || errors.Is(err, db.ErrUnavailable) != want {
			t.Errorf("%s: %v", code, err)
		}
	}
	slow := func(ctx context.Context, timeout string) error {
		return d.InTx(ctx, func(tx *db.Tx) error {
			if _, err := tx.Exec(t.Context(), `SET LOCAL statement_timeout = `+timeout); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `SELECT pg_sleep(60)`)
			return err
		})
	}
	if err := slow(t.Context(), "100"); !errors.Is(err, db.ErrUnavailable) {
		t.Errorf("a statement that the server cancelled: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if err := slow(gone, "0"); err == nil || errors.Is(err, db.ErrUnavailable) {
		t.Errorf("a caller that hung up: %v", err)
	}
	// The caller's deadline is the caller's, although the limit of the transaction is near it.
	impatient, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := d.InTx(db.WithLimit(impatient, time.Minute), func(tx *db.Tx) error {
		_, err := tx.Exec(impatient, `SELECT pg_sleep(60)`)
		return err
	})
	if err == nil || errors.Is(err, db.ErrUnavailable) {
		t.Errorf("a caller whose time ended: %v", err)
	}
}

// Leases are renewed on connections of their own, however many requests wait for one.
func TestReservedConnectionsDoNotWait(t *testing.T) {
	d := postgres(t, 1)
	createCounters(t, d)
	if err := d.InTx(t.Context(), func(tx *db.Tx) error {
		_, err := d.Reserved().Exec(t.Context(), `INSERT INTO counters (id, seen_at) VALUES ('lease', 1)`)
		return err
	}); err != nil {
		t.Error(err)
	}
	file := open(t, "sqlite://"+filepath.Join(t.TempDir(), "x.db"))
	rows, err := file.Query(t.Context(), `SELECT 1`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	if _, err := file.Reserved().Exec(t.Context(), `CREATE TABLE leased (id TEXT)`); err != nil {
		t.Error(err)
	}
	if memory := open(t, "sqlite::memory:"); memory.Reserved() != memory {
		t.Error("an in-memory database has a second connection")
	}
}
