package db_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cutroom/internal/db"
	"cutroom/internal/dbtest"
)

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

// untilWaitedFor returns when somebody waits for the table nodes.
func untilWaitedFor(ctx context.Context, tx *db.Tx) error {
	for waiting := 0; waiting == 0; {
		if err := tx.QueryRow(ctx, `SELECT COUNT(*) FROM pg_locks WHERE NOT granted AND relation = 'nodes'::regclass`).Scan(&waiting); err != nil {
			return err
		}
	}
	return nil
}

// Lookups at the same time have each their own answer, whatever becomes of the
// others.
func TestLookupsAreAnsweredEachByItself(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *db.DB) {
		for n := range 100 {
			if _, err := d.Exec(t.Context(), `INSERT INTO nodes (id, seen_at) VALUES ($1, $2)`, fmt.Sprint("n", n), n); err != nil {
				t.Fatal(err)
			}
		}
		ctx := db.Prompt(t.Context(), 20*time.Second)
		ours := errors.New("a row that is not liked")
		var all sync.WaitGroup
		for n := range 100 {
			all.Go(func() {
				query, keys, want := `SELECT seen_at FROM nodes WHERE id = $1`, []string{fmt.Sprint("n", n)}, []int{n}
				switch n % 10 {
				case 3:
					query = `SELECT seen_at FROM no_such_table WHERE id = $1`
				case 5:
					keys, want = []string{"nobody"}, nil
				case 7:
					query, keys, want = `SELECT seen_at FROM nodes WHERE seen_at >= CAST($1 AS BIGINT) ORDER BY seen_at`, []string{"97"}, []int{97, 98, 99}
				}
				var got []int
				err := d.Lookup(ctx, query, keys, func(row db.Scanner) error {
					if n%10 == 4 {
						return ours
					}
					var seen int
					err := row.Scan(&seen)
					got = append(got, seen)
					return err
				})
				switch {
				case n%10 == 3:
					if err == nil || !strings.Contains(err.Error(), "no_such_table") {
						t.Errorf("a table that is missing: %v", err)
					}
				case n%10 == 4:
					if !errors.Is(err, ours) {
						t.Errorf("the caller's own error became %v", err)
					}
				case err != nil || fmt.Sprint(got) != fmt.Sprint(want):
					t.Errorf("lookup %d: %v, %v; want %v", n, got, err, want)
				}
			})
		}
		all.Wait()
	})
}

// What nobody answers ends in time, for those as well who came while others waited.
func TestLookupsEndWithTheirTime(t *testing.T) {
	d := postgres(t, 4)
	locked, release := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		err := d.InTx(context.Background(), func(tx *db.Tx) error {
			_, err := tx.Exec(context.Background(), `LOCK TABLE nodes IN ACCESS EXCLUSIVE MODE`)
			close(locked)
			<-release
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-locked
	var asked sync.WaitGroup
	for range 20 {
		asked.Go(func() {
			began := time.Now()
			err := d.Lookup(db.Prompt(t.Context(), 500*time.Millisecond), `SELECT seen_at FROM nodes WHERE id = $1`, []string{"x"},
				func(db.Scanner) error { return nil })
			if took := time.Since(began); !errors.Is(err, db.ErrUnavailable) || took > 30*time.Second {
				t.Errorf("after %v: %v", took, err)
			}
		})
	}
	asked.Wait()
	close(release)
	all.Wait()
}

// A lookup that hangs holds up none that comes after it.
func TestALookupThatHangsHoldsUpNoOther(t *testing.T) {
	d := postgres(t, 4)
	ctx := db.Prompt(t.Context(), 20*time.Second)
	var hanging sync.WaitGroup
	err := d.InTx(t.Context(), func(tx *db.Tx) error {
		if _, err := tx.Exec(t.Context(), `LOCK TABLE nodes IN ACCESS EXCLUSIVE MODE`); err != nil {
			return err
		}
		hanging.Go(func() {
			if err := d.Lookup(ctx, `SELECT seen_at FROM nodes WHERE id = $1`, []string{"x"}, func(db.Scanner) error { return nil }); err != nil {
				t.Errorf("the one that hung: %v", err)
			}
		})
		if err := untilWaitedFor(t.Context(), tx); err != nil {
			return err
		}
		return d.Lookup(ctx, `SELECT slots FROM replicas WHERE id = $1`, []string{"x"}, func(db.Scanner) error { return nil })
	})
	if err != nil {
		t.Error(err)
	}
	hanging.Wait()
}

// A lookup whose time is over takes none along that came after it.
func TestALookupThatIsLateFailsNoOther(t *testing.T) {
	d := postgres(t, 2)
	var asked sync.WaitGroup
	ask := func(limit time.Duration, query string) <-chan error {
		answer := make(chan error, 1)
		asked.Go(func() {
			answer <- d.Lookup(db.Prompt(t.Context(), limit), query, []string{"x"}, func(db.Scanner) error { return nil })
		})
		return answer
	}
	var hanging, patient <-chan error
	err := d.InTx(t.Context(), func(tx *db.Tx) error {
		if _, err := tx.Exec(t.Context(), `LOCK TABLE nodes IN ACCESS EXCLUSIVE MODE`); err != nil {
			return err
		}
		hanging = ask(time.Minute, `SELECT seen_at FROM nodes WHERE id = $1`)
		if err := untilWaitedFor(t.Context(), tx); err != nil {
			return err
		}
		ask(50*time.Millisecond, `SELECT $1`)
		time.Sleep(20 * time.Millisecond) // it stands in line, as likely as not
		patient = ask(time.Minute, `SELECT $1`)
		time.Sleep(100 * time.Millisecond)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	asked.Wait()
	if err := errors.Join(<-hanging, <-patient); err != nil {
		t.Error(err)
	}
}
