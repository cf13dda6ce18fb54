package render

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/testkit/benchtest"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/testkit/jobtest"
	"cutroom/internal/work/idempotency"
	"cutroom/internal/work/job"
)

var (
	benchClaims = flag.Duration("bench-claims", 0, "measure claims for this long in each setting")
	benchQueue  = flag.Int("bench-claims-queue", 100_000, "the longest queue")
)

// TestBenchmarkClaims prints the rows of two tables in docs/benchmarks.md. It is in this package because the public
// loop of the workers does more than claim jobs.
func TestBenchmarkClaims(t *testing.T) {
	if *benchClaims == 0 {
		t.Skip("run by make bench-scale")
	}
	t.Run("Queue", func(t *testing.T) {
		for _, finished := range []int{0, min(100_000, *benchQueue)} {
			for waiting := 100; waiting <= *benchQueue; waiting *= 10 {
				t.Run("", func(t *testing.T) { newLongQueue(t, 1000, waiting, finished).completes() })
			}
		}
	})
	t.Run("Turns", func(t *testing.T) {
		for _, owners := range []int{1, 100, 1000} {
			t.Run("", func(t *testing.T) { newLongQueue(t, owners, *benchQueue, 0).takesTurns() })
		}
	})
}

// longQueue is a PostgreSQL database with the jobs of many owners.
type longQueue struct {
	*harness
	open                      func(connections int) *db.DB
	owners, waiting, finished int
	spec                      string // as long as the spec of a real film with a few segments
}

const (
	numbered  = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1) `
	insertJob = `INSERT INTO jobs (id, kind, source_duration_ms, user_id, state, created_at, started_at, finished_at) `
)

func newLongQueue(t *testing.T, owners, waiting, finished int) *longQueue {
	t.Helper()
	q := &longQueue{owners: owners, waiting: waiting, finished: finished}
	url, user, password := dbtest.URL(t)
	q.open = func(connections int) *db.DB {
		return dbtest.Open(t, db.Options{URL: url, User: user, Password: password, MaxPool: connections})
	}
	q.harness = newHarness(t, q.open(2))
	q.Exec(numbered+`INSERT INTO users (id, provider, provider_sub, created_at, last_active_at)
		SELECT 'user-' || i, 'provider_a', 'user-' || i, now_ms(), now_ms() FROM n`, owners)
	q.spec = specOf(t, 4)
	if finished > 0 {
		q.Exec(numbered+insertJob+`SELECT 'rnd-a-' || i, 'render', 0, 'user-' || (i % $2 + 1), CASE WHEN i % 20 = 0 THEN 'FAILED' ELSE 'COMPLETED' END,
			now_ms() - 604800000 + i, now_ms() - 604800000 + i, now_ms() - 604800000 + i FROM n`, finished, owners)
	}
	q.Exec(numbered+insertJob+`SELECT 'rnd-b-' || i, 'render', 0, 'user-' || (i % $2 + 1), 'PENDING', now_ms() - 100000 + i, NULL, NULL FROM n`,
		waiting, owners)
	q.finish(q.spec)
	return q
}

// work runs workers that claim jobs, each on its own replica. After each claim a worker calls end, which ends the job
// and returns how long that took. cpu is PostgreSQL's CPU time for each cycle.
func (q *longQueue) work(workers int, end func(s *Service, j claimedJob) (time.Duration, error)) (c benchtest.Claims, cpu time.Duration) {
	q.T.Helper()
	q.Exec(`VACUUM ANALYZE`) // the test server has no autovacuum
	services := make([]*Service, workers)
	for i := range services {
		services[i] = q.service(&jobtest.Engine{}, q.open(1))
	}
	cycle := func(worker int) (claim, took time.Duration, err error) {
		s, began := services[worker], time.Now()
		for {
			// A statement sees the queue as of its start. If it was delayed, other workers may have claimed all jobs of
			// a short queue.
			j, ok, err := s.claim(q.T.Context())
			if err != nil {
				return 0, 0, err
			}
			if ok {
				claim = time.Since(began)
				took, err = end(s, j)
				return claim, took, err
			}
		}
	}
	measure := func(limit time.Duration) benchtest.Claims {
		c, err := benchtest.MeasureClaims(workers, limit, cycle)
		if err != nil {
			q.T.Fatal(err)
		}
		return c
	}
	measure(100 * time.Millisecond) // warm-up: opens connections, prepares statements
	postmaster := benchtest.Parent(int(q.Number(`SELECT pg_backend_pid()`)))
	before := benchtest.FamilyCPU(postmaster)
	c = measure(*benchClaims)
	return c, (benchtest.FamilyCPU(postmaster) - before) / time.Duration(len(c.Claim))
}

// completes claims and completes jobs. It adds a job for each that ends, so the queue keeps its length.
func (q *longQueue) completes() {
	for _, workers := range []int{1, 16} {
		c, _ := q.work(workers, func(s *Service, j claimedJob) (time.Duration, error) {
			began := time.Now()
			err := s.completed(q.T.Context(), j, stored{key: outputKey(j.ID, "mp4"), size: 1, sha256: "0", length: time.Second})
			took := time.Since(began)
			if err == nil {
				_, _, err = s.jobs.Enqueue(q.T.Context(), idempotency.Key{}, job.New{ID: fmt.Sprintf("rnd-c-%d", q.serial.Add(1)), UserID: j.UserID,
					State: StatePending, Details: map[string]any{"spec": q.spec, "output_kind": "video"}})
			}
			return took, err
		})
		fmt.Printf("| %d | %d | %d | %.0f | %s | %s | %s | %s |\n", q.finished, q.waiting, workers, c.PerSecond,
			benchtest.Median(c.Claim), benchtest.Slow(c.Claim), benchtest.Median(c.End), benchtest.Slow(c.End))
	}
}

// takesTurns claims jobs. A worker ends its job before it claims the next one.
func (q *longQueue) takesTurns() {
	q.Exec(`INSERT INTO replicas (id, slots, free_bytes, seen_at) VALUES ('others', 1000, 0, now_ms() + 3600000)`)
	for _, workers := range []int{1, 16} {
		c, cpu := q.work(workers, func(s *Service, j claimedJob) (time.Duration, error) {
			return 0, s.completed(q.T.Context(), j, stored{key: outputKey(j.ID, "mp4"), size: 1, sha256: "0", length: time.Second})
		})
		fmt.Printf("| %d | %d | %d | %.0f | %s | %s | %s |\n", q.owners, q.waiting, workers, c.PerSecond,
			benchtest.Median(c.Claim), benchtest.Slow(c.Claim), benchtest.Millis(cpu))
	}
}
