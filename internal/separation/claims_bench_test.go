package separation

import (
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cutroom/internal/benchtest"
	"cutroom/internal/db"
	"cutroom/internal/dbtest"
)

var benchClaims = flag.Duration("bench-claims", 0, "measure claims for this long in each setting and write a section of docs/benchmarks.md")

// TestBenchmarkClaims measures how fast jobs are claimed. It is in this package because the public loop of the
// workers does more than claim jobs.
func TestBenchmarkClaims(t *testing.T) {
	if *benchClaims == 0 {
		t.Skip("run by make bench-queue")
	}
	r := benchtest.New("bench-queue", "How fast separations are claimed")
	r.Say(`One cycle is a claim (lock, count of jobs in flight, oldest job, lease) and the update that ends the job, so that as many jobs
are in flight as there are workers. On PostgreSQL each worker is a replica with connections of its own; on SQLite, which one process
uses, the workers share its pool. "Finished" is how many ended jobs the table holds besides. The PostgreSQL server is the tests': on
the same machine, over TLS, and without fsync, so its figures lack the disk's share. SQLite syncs every commit.`)
	r.Table("Database", "Finished", "Workers", "Cycles per second", "Claim, median", "Claim, 95 %")
	for _, database := range []string{"SQLite", "PostgreSQL"} {
		for _, finished := range []int{0, 100_000} {
			for _, workers := range []int{1, 4, 16} {
				version, c := measureClaims(t, database, finished, workers)
				r.Row("%s %s | %d | %d | %.0f | %s | %s", database, version, finished, workers, c.PerSecond,
					benchtest.Median(c.Claim), benchtest.Slow(c.Claim))
			}
		}
	}
	r.Say(`Claims are made one at a time over all replicas, because counting and claiming must not race; more workers therefore add no
speed, and need none: with at most five jobs in flight and each taking the better part of a minute, the queue sees a few claims a
minute. Ended jobs make no difference beyond noise, because every query of the queue runs on a partial index that leaves them out.`)
	if err := r.Save("../../docs/benchmarks.md"); err != nil {
		t.Fatal(err)
	}
}

// measureClaims runs workers that claim and finish jobs. On PostgreSQL each worker is a replica with its own
// connections; on SQLite they share one process.
func measureClaims(t *testing.T, database string, finished, workers int) (version string, c benchtest.Claims) {
	t.Helper()
	o, query := db.Options{URL: "sqlite://" + filepath.Join(t.TempDir(), "x.db"), MaxPool: 12}, "SELECT sqlite_version()"
	if database == "PostgreSQL" {
		o.URL, o.User, o.Password = dbtest.URL(t)
		query = "SHOW server_version"
	}
	r := newHarness(t, dbtest.Open(t, o))
	owner := r.User(0)
	fill := `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
		INSERT INTO jobs (kind, source_duration_ms, id, user_id, state, created_at, finished_at) SELECT 'separation', 0, `
	if finished > 0 {
		r.Exec(fill+`'sep-old-' || i, $2, CASE WHEN i % 20 = 0 THEN 'FAILED' WHEN i % 2 = 0 THEN 'READY' ELSE 'DISPOSED' END,
			now_ms() - 604800000 + i * 6000, now_ms() - 604800000 + i * 6000 + 30000 FROM n`, finished, owner)
	}
	r.Exec(fill+`'sep-new-' || i, $2, 'QUEUED', now_ms() + i, NULL FROM n`, int(benchClaims.Seconds()*3000), owner)
	r.Exec(`INSERT INTO separations (job_id, source_key, source_name, source_size_bytes, language, credits, submitting_at, processing_at)
		SELECT id, '', '', 0, 'auto', 1, finished_at - 30000, finished_at - 30000 FROM jobs`)
	services := make([]*Service, workers)
	for i := range services {
		own := r.DB
		if r.DB.Postgres() {
			o.MaxPool = 2
			own = dbtest.Open(t, o)
		}
		services[i] = r.service(func(o *Options) { o.DB, o.InFlight = own, workers })
	}
	if r.DB.Postgres() {
		r.Exec(`ANALYZE`) // autovacuum does this; SQLite has no counterpart
	}
	c, err := benchtest.MeasureClaims(workers, *benchClaims, func(worker int) (claim, end time.Duration, err error) {
		s, began := services[worker], time.Now()
		j, ok, err := s.claim(t.Context())
		if err != nil || !ok {
			return 0, 0, fmt.Errorf("claim: %v, %w", ok, err)
		}
		claim = time.Since(began)
		// End the job without stems.
		err = s.db.InTx(t.Context(), func(tx *db.Tx) error {
			_, err := s.jobs.Move(t.Context(), tx, j.ID, StateSubmitting, StateReady,
				`, finished_at = now_ms(), lease_owner = NULL, lease_until = NULL`, ` AND fence = $4`, j.Fence)
			return err
		})
		return claim, time.Since(began) - claim, err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.DB.QueryRow(t.Context(), query).Scan(&version); err != nil {
		t.Fatal(err)
	}
	return strings.Fields(version)[0], c
}
