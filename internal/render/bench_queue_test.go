package render

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"cutroom/internal/benchtest"
	"cutroom/internal/db"
	"cutroom/internal/dbtest"
)

// longQueue is a PostgreSQL database with many owners' jobs.
type longQueue struct {
	*harness
	options db.Options
	owners  int
	spec    string // as long as that of a real film of a few segments
}

const (
	numbered  = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1) `
	insertJob = `INSERT INTO render_jobs (id, user_id, state, spec, output_kind, source_duration_ms, created_at, started_at, finished_at) `
)

func newLongQueue(t *testing.T, owners, waiting, finished int) *longQueue {
	t.Helper()
	q := &longQueue{owners: owners}
	q.options.URL, q.options.User, q.options.Password = dbtest.URL(t)
	q.harness = newHarness(t, q.open(t, 2))
	q.exec(numbered+`INSERT INTO users (id, provider, provider_sub, created_at, last_active_at)
		SELECT 'user-' || i, 'provider_a', 'user-' || i, now_ms(), now_ms() FROM n`, owners)
	var err error
	if q.spec, err = (spec{Timeline: timelineOf(4), Sources: map[string]object{}}).encode(); err != nil {
		t.Fatal(err)
	}
	if finished > 0 {
		q.exec(numbered+insertJob+`SELECT 'rnd-a-' || i, 'user-' || (i % $3 + 1), CASE WHEN i % 20 = 0 THEN 'FAILED' ELSE 'COMPLETED' END, $2, 'video', 0,
			now_ms() - 604800000 + i, now_ms() - 604800000 + i, now_ms() - 604800000 + i FROM n`, finished, q.spec, owners)
	}
	q.exec(numbered+insertJob+`SELECT 'rnd-b-' || i, 'user-' || (i % $3 + 1), 'PENDING', $2, 'video', 0, now_ms() - 100000 + i, NULL, NULL FROM n`,
		waiting, q.spec, owners)
	return q
}

func (q *longQueue) open(t testing.TB, connections int) *db.DB {
	o := q.options
	o.MaxPool = connections
	return dbtest.Open(t, o)
}

// claimed is what workers did.
type claimed struct {
	claims    []time.Duration // sorted
	perSecond float64
	cpu       time.Duration // of PostgreSQL, for each claim and what followed it
}

// warmUpClaims is how many claims open a worker's connection and prepare its statements.
const warmUpClaims = 10

// work lets workers claim jobs for the time given, each on a replica of its own. After
// each claim a worker calls end.
func (q *longQueue) work(workers int, limit time.Duration, end func(s *Service, j claimedJob) error) (c claimed) {
	q.t.Helper()
	// As autovacuum does, which the tests' server has switched off.
	q.exec(`VACUUM ANALYZE`)
	services := make([]*Service, workers)
	for i := range services {
		services[i] = q.service(&simulated{}, q.open(q.t, 1))
	}
	q.each(services, func(s *Service) error {
		for range warmUpClaims {
			if _, err := q.cycle(s, end); err != nil {
				return err
			}
		}
		return nil
	})
	var mu sync.Mutex
	postmaster := benchtest.Parent(int(q.number(`SELECT pg_backend_pid()`)))
	began, cpu := time.Now(), benchtest.FamilyCPU(postmaster)
	q.each(services, func(s *Service) error {
		for time.Since(began) < limit {
			took, err := q.cycle(s, end)
			if err != nil {
				return err
			}
			mu.Lock()
			c.claims = append(c.claims, took)
			mu.Unlock()
		}
		return nil
	})
	n := len(c.claims)
	c.perSecond = float64(n) / time.Since(began).Seconds()
	c.cpu = (benchtest.FamilyCPU(postmaster) - cpu) / time.Duration(n)
	slices.Sort(c.claims)
	return c
}

// each lets all services do something at once.
func (q *longQueue) each(services []*Service, do func(s *Service) error) {
	q.t.Helper()
	var all errgroup.Group
	for _, s := range services {
		all.Go(func() error { return do(s) })
	}
	if err := all.Wait(); err != nil {
		q.t.Fatal(err)
	}
}

// cycle claims a job and ends it. It tells how long the claim took.
func (q *longQueue) cycle(s *Service, end func(s *Service, j claimedJob) error) (claim time.Duration, err error) {
	began := time.Now()
	for {
		// A statement sees the queue as it was when it began. If the machine delayed
		// it, all jobs of a short queue may be claimed.
		j, ok, err := s.claim(q.t.Context())
		if err != nil {
			return 0, err
		}
		if ok {
			claim = time.Since(began)
			return claim, end(s, j)
		}
	}
}

// queued is one line of the third table.
type queued struct {
	waiting, finished, workers int
	claimed
	ends []time.Duration // sorted
}

const headQueue = `Finished | Waiting | Workers | Cycles per second | Claim, median | 95 % | End, median | 95 %`

func (q queued) line(add func(string, ...any)) {
	add("%d | %d | %d | %.0f | %s | %s | %s | %s", q.finished, q.waiting, q.workers, q.perSecond, median(q.claims), slow(q.claims), median(q.ends), slow(q.ends))
}

func median(sorted []time.Duration) string { return benchtest.Millis(benchtest.Quantile(sorted, 50)) }

func slow(sorted []time.Duration) string { return benchtest.Millis(benchtest.Quantile(sorted, 95)) }

// measureQueue claims and completes jobs of a queue that keeps its length, because a new
// job comes for each that ends.
func measureQueue(t *testing.T, waiting, finished int) (lines []queued) {
	q := newLongQueue(t, 1000, waiting, finished)
	for _, workers := range []int{1, 16} {
		var mu sync.Mutex
		line := queued{waiting: waiting, finished: finished, workers: workers}
		line.claimed = q.work(workers, 2**benchScale, func(s *Service, j claimedJob) error {
			at := time.Now()
			if err := s.completed(t.Context(), j, stored{key: outputKey(j.ID, "mp4"), size: 1, sha256: "0", length: time.Second}); err != nil {
				return err
			}
			took := time.Since(at)
			mu.Lock()
			line.ends = append(line.ends, took)
			mu.Unlock()
			_, err := s.db.Exec(t.Context(), insertJob+`VALUES ($1, $2, 'PENDING', $3, 'video', 0, now_ms(), NULL, NULL)`,
				fmt.Sprintf("rnd-c-%d", q.serial.Add(1)), j.UserID, q.spec)
			return err
		})
		slices.Sort(line.ends)
		lines = append(lines, line)
	}
	return lines
}

// turns is one line of the fourth table.
type turns struct {
	owners, waiting, workers int
	claimed
}

const headTurns = `Owners | Waiting | Workers | Claims per second | Claim, median | 95 % | PostgreSQL CPU per claim`

func (l turns) line(add func(string, ...any)) {
	add("%d | %d | %d | %.0f | %s | %s | %s", l.owners, l.waiting, l.workers, l.perSecond, median(l.claims), slow(l.claims), benchtest.Millis(l.cpu))
}

// measureTurns claims jobs of a long queue, each after the end of the worker's last one.
func measureTurns(t *testing.T, owners, waiting int) (lines []turns) {
	q := newLongQueue(t, owners, waiting, 0)
	q.exec(`INSERT INTO replicas (id, slots, free_bytes, seen_at) VALUES ('others', 1000, 0, now_ms() + 3600000)`)
	for _, workers := range []int{1, 16} {
		line := turns{owners: owners, waiting: waiting, workers: workers}
		line.claimed = q.work(workers, 2**benchScale, func(s *Service, j claimedJob) error {
			_, err := s.db.Exec(t.Context(), `UPDATE render_jobs SET state = 'COMPLETED', lease_owner = NULL, lease_until = NULL
				WHERE id = $1 AND fence = $2`, j.ID, j.Fence)
			return err
		})
		lines = append(lines, line)
	}
	return lines
}
