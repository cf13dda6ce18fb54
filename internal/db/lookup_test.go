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

// Concurrent lookups get their own answers, whatever happens to the others.
func TestLookupsAreAnsweredEachByItself(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *db.DB) {
		createCounters(t, d)
		for n := range 100 {
			dbtest.Exec(t, d, `INSERT INTO counters (id, seen_at) VALUES ($1, $2)`, fmt.Sprint("n", n), n)
		}
		ctx := db.Prompt(t.Context(), 20*time.Second)
		ours := errors.New("a row that is not liked")
		var all sync.WaitGroup
		for n := range 100 {
			all.Go(func() {
				query, keys, want := `SELECT seen_at FROM counters WHERE id = $1`, []string{fmt.Sprint("n", n)}, []int{n}
				switch n % 10 {
				case 3:
					query = `SELECT seen_at FROM no_such_table WHERE id = $1`
				case 5:
					keys, want = []string{"nobody"}, nil
				case 7:
					query, keys, want = `SELECT seen_at FROM counters WHERE seen_at >= CAST($1 AS BIGINT) ORDER BY seen_at`, []string{"97"}, []int{97, 98, 99}
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

// A lookup that gets no answer ends in time.
func TestLookupsEndWithTheirTime(t *testing.T) {
	d := postgres(t, 4)
	createCounters(t, d)
	locked, release := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		err := d.InTx(context.Background(), func(tx *db.Tx) error {
			_, err := tx.Exec(context.Background(), `LOCK TABLE counters IN ACCESS EXCLUSIVE MODE`)
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
			err := d.Lookup(db.Prompt(t.Context(), 500*time.Millisecond), `SELECT seen_at FROM counters WHERE id = $1`, []string{"x"},
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
