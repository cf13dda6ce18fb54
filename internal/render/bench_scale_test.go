package render

import (
	"flag"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"cutroom/internal/benchtest"
	"cutroom/internal/db"
	"cutroom/internal/dbtest"
	"cutroom/internal/diskcache"
)

var (
	benchScale   = flag.Duration("bench-scale", 0, "length of a simulated film; measures how rendering scales and writes a section of the page")
	benchWorkers = flag.Int("bench-scale-workers", 64, "the largest number of simulated workers")
	benchQueue   = flag.Int("bench-scale-queue", 100_000, "the longest queue")
	benchFilms   = flag.Int("bench-scale-films", 6, "real films of the batch for real replicas; 0 leaves them out")
	benchOnly    = flag.String("bench-scale-only", "", "measure one table alone, batch, film, uneven, queue, turns or replicas, and write to no page")
	benchReport  = flag.String("bench-scale-report", "../../docs/benchmarks.md", "page to write to")
)

const (
	jobsPerWorker = 8
	filmParts     = 64
	slowest       = 4 // times what any other part of the uneven film takes
	finishedJobs  = 100_000
)

// TestBenchmarkScale measures how rendering scales over replicas. It is no
// Benchmark, because every setting needs a database prepared for it, and its
// result is a document.
func TestBenchmarkScale(t *testing.T) {
	if *benchScale == 0 {
		t.Skip("run by make bench-scale")
	}
	var steps []int
	for n := 1; n <= *benchWorkers; n *= 2 {
		steps = append(steps, n)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(200)) // as serve does
	report := benchtest.New("bench-scale", "How rendering scales")
	report.Say(introScale, benchPostgres(t))
	type row = func(format string, args ...any)
	part := func(name, title, intro, head string, lines func(add row)) {
		if *benchOnly != "" && *benchOnly != name {
			return
		}
		report.Say("### %s", title)
		report.Say("%s", intro)
		report.Table(strings.Split(head, " | ")...)
		lines(report.Row)
	}
	part("batch", "Many jobs, many workers", fmt.Sprintf(introBatch, jobsPerWorker, *benchScale), headBatch, func(add row) {
		for _, n := range steps {
			inTest(t, func(t *testing.T) { measureBatch(t, n).line(add) })
		}
	})
	part("film", "One long film, many workers", fmt.Sprintf(introFilm, filmParts, *benchScale/2), headFilm, func(add row) {
		for _, n := range steps {
			inTest(t, func(t *testing.T) { measureFilm(t, n, 1).line(add) })
		}
	})
	part("uneven", "One long film with an expensive segment", fmt.Sprintf(introUneven, slowest), headFilm, func(add row) {
		for _, n := range steps {
			inTest(t, func(t *testing.T) { measureFilm(t, n, slowest).line(add) })
		}
	})
	part("queue", "A queue that grows", introQueue, headQueue, func(add row) {
		for _, finished := range []int{0, min(finishedJobs, *benchQueue)} {
			for waiting := 100; waiting <= *benchQueue; waiting *= 10 {
				inTest(t, func(t *testing.T) {
					for _, q := range measureQueue(t, waiting, finished) {
						q.line(add)
					}
				})
			}
		}
	})
	part("turns", "Many owners take turns", introTurns, headTurns, func(add row) {
		for _, owners := range []int{1, 100, 1000} {
			inTest(t, func(t *testing.T) {
				for _, l := range measureTurns(t, owners, *benchQueue) {
					l.line(add)
				}
			})
		}
	})
	part("replicas", "Two real replicas", fmt.Sprintf(introReplicas, *benchFilms, realSegments, realLength), headReplicas, func(add row) {
		if *benchFilms == 0 {
			return
		}
		var alone, two replicas
		inTest(t, func(t *testing.T) { alone = measureReplicas(t, 1) })
		alone.lines(add, alone)
		inTest(t, func(t *testing.T) { two = measureReplicas(t, 2) })
		two.lines(add, alone)
	})
	if *benchOnly != "" {
		return
	}
	if err := report.Save(*benchReport); err != nil {
		t.Fatal(err)
	}
}

// inTest runs a measurement in a test of its own, at whose end its database,
// its files and its processes go. A measurement that failed ends them all.
func inTest(t *testing.T, measure func(t *testing.T)) {
	t.Helper()
	if !t.Run("setting", measure) {
		t.FailNow()
	}
}

// crowd is workers that each are a replica: with connections to database and bucket,
// a listener and a local cache of their own, and one slot.
type crowd struct {
	*harness
	url, role, password string
	engines             []*simulated
	pools               []*db.DB
	stops               []func()
}

func newCrowd(t *testing.T, n int, takes time.Duration, parts int) *crowd {
	t.Helper()
	c := &crowd{}
	c.url, c.role, c.password = dbtest.URL(t)
	// One connection, so that every other session is a worker's.
	c.harness = newHarness(t, dbtest.Open(t, db.Options{URL: c.url, User: c.role, Password: c.password, MaxPool: 1}))
	c.shareBucket()
	var services []*Service
	for range n {
		// Three connections: the loop, the progress and the heartbeat.
		d := dbtest.Open(t, db.Options{URL: c.url, User: c.role, Password: c.password, MaxPool: 3})
		local, err := diskcache.New(diskcache.Config{Dir: filepath.Join(c.dir, fmt.Sprintf("cache-%d", len(c.pools)))})
		if err != nil {
			t.Fatal(err)
		}
		bucket := c.openBucket()
		e := &simulated{takes: warmUp, parts: n, cache: NewSharedCache(local, bucket)}
		c.engines, c.pools = append(c.engines, e), append(c.pools, d)
		s := c.service(e, d)
		s.Store, s.Bucket = bucket, bucket
		services = append(services, s)
		c.exec(`INSERT INTO replicas (id, slots, free_bytes, seen_at) VALUES ($1, 1, 0, now_ms() + 3600000)`, s.Renewer.Owner())
	}
	for _, s := range services {
		c.stops = append(c.stops, c.run(s))
	}
	c.idle()
	// One film that all of them make, as in a service at work: it opens connections
	// and prepares statements.
	owner := c.user()
	c.enqueue(1, owner, c.source(owner))
	c.eventually("the first film is made", time.Minute, func() bool {
		return c.number(`SELECT COUNT(*) FROM render_jobs WHERE state = 'COMPLETED'`) == 1
	})
	// A session that listens counts what it does at its end alone.
	c.exec(`SELECT pg_terminate_backend(pid) FROM ` + sessions + ` AND query LIKE 'LISTEN%'`)
	c.idle()
	c.exec(`DELETE FROM render_jobs`)
	for _, e := range c.engines {
		e.mu.Lock()
		e.takes, e.parts, e.films, e.made, e.helped = takes, parts, nil, 0, 0
		e.mu.Unlock()
	}
	return c
}

// sessions are those of this database but our own.
const sessions = `pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`

// idle waits until every worker listens and has found the queue empty.
func (c *crowd) idle() {
	c.t.Helper()
	c.eventually("all workers listen and are idle", time.Minute, func() bool {
		return c.number(`SELECT COUNT(*) FROM `+sessions+` AND query LIKE 'LISTEN%' AND state = 'idle'`) == int64(len(c.pools)) &&
			c.number(`SELECT COUNT(*) FROM `+sessions+` AND (state <> 'idle' OR state_change > now() - interval '100 ms')`) == 0
	})
}

// warmUp is what a part of the first film takes.
const warmUp = 500 * time.Millisecond

// finish waits until n jobs are rendered, and then stops the workers and closes
// their connections, which makes PostgreSQL count what they did.
func (c *crowd) finish(n int, limit time.Duration, counted func()) {
	c.t.Helper()
	// The engines are asked, and the database only when they are done: what is
	// measured are the workers' queries.
	c.eventually("all films made", limit, func() bool {
		done := 0
		for _, e := range c.engines {
			for _, f := range e.rendered() {
				if !f.ended.IsZero() {
					done++
				}
			}
		}
		return done >= n
	})
	c.eventually("all jobs completed", limit, func() bool {
		return c.number(`SELECT COUNT(*) FROM render_jobs WHERE state = 'COMPLETED'`) == int64(n)
	})
	counted()
	for i, stop := range c.stops {
		stop()
		if err := c.pools[i].Close(); err != nil {
			c.t.Error(err)
		}
	}
}

// batch is one line of the first table.
type batch struct {
	workers, jobs             int
	wall, ideal               time.Duration
	dispatch, between         []time.Duration // sorted
	transactions, postgresCPU float64         // per job; the latter in ms
}

const headBatch = `Workers | Jobs | Wall | Ideal | Efficiency | Job's end to next claim, median | 95 % | Film's end to next film, median | 95 % | Transactions per job | PostgreSQL CPU per job`

func (b batch) line(add func(string, ...any)) {
	add("%d | %d | %.2f s | %.2f s | %.1f %% | %s | %s | %s | %s | %.1f | %.1f ms", b.workers, b.jobs, b.wall.Seconds(), b.ideal.Seconds(),
		100*b.ideal.Seconds()/b.wall.Seconds(), benchtest.Millis(benchtest.Quantile(b.dispatch, 50)), benchtest.Millis(benchtest.Quantile(b.dispatch, 95)),
		benchtest.Millis(benchtest.Quantile(b.between, 50)), benchtest.Millis(benchtest.Quantile(b.between, 95)), b.transactions, b.postgresCPU)
}

// measureBatch lets n idle workers wake to a full queue and empty it.
func measureBatch(t *testing.T, n int) batch {
	c := newCrowd(t, n, *benchScale, 0)
	owner := c.user()
	sources := c.source(owner)
	jobs := n * jobsPerWorker
	b := batch{workers: n, jobs: jobs, ideal: jobsPerWorker * *benchScale}
	m := c.meter()
	_, from := c.enqueue(jobs, owner, sources)
	var cpu time.Duration
	c.finish(jobs, 2*time.Minute+4*b.ideal, func() { cpu = m.cpu() })
	b.postgresCPU = float64(cpu.Microseconds()) / 1000 / float64(jobs)
	b.transactions = m.transactions() / float64(jobs)
	b.wall = time.Duration(c.number(`SELECT MAX(finished_at) FROM render_jobs`)-from) * time.Millisecond
	for _, e := range c.engines {
		films := e.rendered()
		for i := 1; i < len(films); i++ {
			b.between = append(b.between, films[i].began.Sub(films[i-1].ended))
			b.dispatch = append(b.dispatch, time.Millisecond*time.Duration(c.number(`SELECT
				(SELECT started_at FROM render_jobs WHERE id = $1) - (SELECT finished_at FROM render_jobs WHERE id = $2)`,
				films[i].jobID, films[i-1].jobID)))
		}
	}
	slices.Sort(b.dispatch)
	slices.Sort(b.between)
	return b
}

// sharedFilm is one line of the second table.
type sharedFilm struct {
	workers, helpers, made    int
	wall, ideal, alone        time.Duration
	transactions, postgresCPU float64 // per part; the latter in ms
}

const headFilm = `Workers | Wall | Ideal | Efficiency | Speed-up | Workers that assisted | Parts made twice | Transactions per part | PostgreSQL CPU per part`

func (f sharedFilm) line(add func(string, ...any)) {
	add("%d | %.2f s | %.2f s | %.1f %% | %.1f | %d | %d | %.1f | %.1f ms", f.workers, f.wall.Seconds(), f.ideal.Seconds(),
		100*f.ideal.Seconds()/f.wall.Seconds(), f.alone.Seconds()/f.wall.Seconds(), f.helpers, f.made-filmParts, f.transactions, f.postgresCPU)
}

// measureFilm gives n idle workers one film of many parts, the first of which takes
// so many times as long as the others.
func measureFilm(t *testing.T, n int, first time.Duration) sharedFilm {
	takes := *benchScale / 2
	c := newCrowd(t, n, takes, filmParts)
	for _, e := range c.engines {
		e.slowest = (first - 1) * takes
	}
	owner := c.user()
	sources := c.source(owner)
	f := sharedFilm{workers: n, alone: (filmParts - 1 + first) * takes}
	f.ideal = max(first*takes, takes*time.Duration((filmParts-1+int(first)+n-1)/n))
	m := c.meter()
	_, from := c.enqueue(1, owner, sources)
	var cpu time.Duration
	c.finish(1, 2*time.Minute+4*f.ideal, func() { cpu = m.cpu() })
	f.postgresCPU = float64(cpu.Microseconds()) / 1000 / filmParts
	f.transactions = m.transactions() / filmParts
	f.wall = time.Duration(c.number(`SELECT MAX(finished_at) FROM render_jobs`)-from) * time.Millisecond
	for _, e := range c.engines {
		f.made += e.made
		if e.helped > 0 {
			f.helpers++
		}
	}
	return f
}

// meter tells what a database's server has used since it was made.
type meter struct {
	r                  *harness
	postmaster         int
	cpuBefore          time.Duration
	transactionsBefore int64
}

// meter starts measuring. PostgreSQL counts a session's transactions late, at
// the latest when it ends; those of sessions that are open now are counted first.
func (c *crowd) meter() *meter {
	m := &meter{r: c.harness}
	r := c.harness
	for _, d := range append([]*db.DB{c.db}, c.pools...) {
		if _, err := d.Exec(c.t.Context(), `SELECT pg_stat_force_next_flush()`); err != nil {
			c.t.Fatal(err)
		}
	}
	// The postmaster is the parent of whoever serves this connection.
	if m.postmaster = benchtest.Parent(int(r.number(`SELECT pg_backend_pid()`))); m.postmaster == 0 {
		r.t.Fatal("PostgreSQL must run on this machine")
	}
	m.transactionsBefore = m.counted()
	m.cpuBefore = benchtest.FamilyCPU(m.postmaster)
	return m
}

func (m *meter) cpu() time.Duration { return benchtest.FamilyCPU(m.postmaster) - m.cpuBefore }

// counted is without what the harness itself asks: it looks the more often the longer the
// others take.
func (m *meter) counted() int64 {
	m.r.number(`SELECT COUNT(pg_stat_force_next_flush())`)
	return -m.r.asked.Load() + m.r.number(`SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()`)
}

// transactions is called when every session but the harness's own has ended.
func (m *meter) transactions() float64 {
	m.r.eventually("sessions ended", time.Minute, func() bool {
		return m.r.number(`SELECT COUNT(*) FROM `+sessions) == 0
	})
	return float64(m.counted() - m.transactionsBefore)
}

// benchPostgres is the version of the tests' server.
func benchPostgres(t *testing.T) string {
	url, user, password := dbtest.URL(t)
	d := dbtest.Open(t, db.Options{URL: url, User: user, Password: password, MaxPool: 1})
	var version string
	if err := d.QueryRow(t.Context(), "SHOW server_version").Scan(&version); err != nil {
		t.Fatal(err)
	}
	return strings.Fields(version)[0]
}
