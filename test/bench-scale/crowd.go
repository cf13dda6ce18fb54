// The replicas of the scaling benchmark: many workers in one process, each with its own connections, that render
// simulated films.

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/domain/render"
	"cutroom/internal/film/media"
	"cutroom/internal/film/timeline"
	"cutroom/internal/storage/diskcache"
	"cutroom/internal/testkit/benchtest"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/testkit/jobtest"
	"cutroom/internal/work/derived"
	"cutroom/internal/work/job"
	"cutroom/internal/work/sweep"
)

// crowd is a set of workers. Each is a replica with one slot and with its own connections to database and bucket, its
// own listener and its own local cache.
type crowd struct {
	*jobtest.Harness
	engines []*jobtest.Engine
	pools   []*db.DB
	stops   []func()

	owner, source string // of every job: a user, and the key of an object
	spec          string
}

// warmUp is how long a part of the first film takes.
const warmUp = 500 * time.Millisecond

func newCrowd(t testing.TB, n int) *crowd {
	url, role, password := dbtest.URL(t)
	open := func(connections int) *db.DB {
		return dbtest.Open(t, db.Options{URL: url, User: role, Password: password, MaxPool: connections})
	}
	// One connection, so that every other session is a worker's.
	c := &crowd{Harness: jobtest.New(t, open(1))}
	c.UseBucket()
	c.prepare()
	var services []*render.Service
	for i := range n {
		d := open(3) // for the loop, the progress and the heartbeat
		c.pools = append(c.pools, d)
		services = append(services, c.service(i, n, d))
	}
	for i, s := range services {
		c.stops = append(c.stops, c.Run(jobtest.Notifier(c.pools[i]), s.Run))
	}
	c.idle()
	// All of them make one film first, as in a service at work: that opens connections and prepares statements.
	c.enqueue("warm-up", 1)
	c.Eventually("the first film is made", func() bool { return c.completed() == 1 })
	// A session that listens counts its transactions only when it ends.
	c.Exec(`SELECT pg_terminate_backend(pid) FROM ` + sessions + ` AND query LIKE 'LISTEN%'`)
	c.idle()
	c.Exec(`DELETE FROM jobs`)
	return c
}

// service returns replica i of n on the connections of d.
func (c *crowd) service(i, n int, d *db.DB) *render.Service {
	log := slog.New(slog.DiscardHandler)
	name := fmt.Sprintf("replica-%d", i)
	work := filepath.Join(c.Dir, name)
	local, err := diskcache.New(diskcache.Config{Dir: filepath.Join(c.Dir, "cache-"+name)})
	if err == nil {
		err = os.MkdirAll(work, 0o700)
	}
	if err != nil {
		c.T.Fatal(err)
	}
	bucket := c.OpenBucket()
	e := &jobtest.Engine{Takes: warmUp, Parts: n, Cache: render.NewSharedCache(local, bucket)}
	c.engines = append(c.engines, e)
	c.Exec(`INSERT INTO replicas (id, slots, free_bytes, seen_at) VALUES ($1, 1, 0, now_ms() + 3600000)`, name)
	return render.New(render.Options{DB: d, Renewer: job.NewRenewer(d, name, log), Store: bucket, Bucket: bucket, Engine: e,
		Slots: media.NewSlots(1), WorkDir: work, Log: log,
		OnDemand: derived.New(derived.Options{AtOnce: 1, PerHolder: 1, MaxWait: 2 * time.Minute, Log: log}),
		CanWork:  func(context.Context) (int64, error) { return 1 << 40, nil }, Timeout: time.Hour, OutputLifetime: time.Hour,
		Sweeper: sweep.New(sweep.Options{DB: d, Store: bucket, Rules: render.SweepRules(time.Hour, time.Hour), Log: log})})
}

// become changes how long the films of the idle workers take and how many parts they have.
func (c *crowd) become(takes time.Duration, parts int) {
	for _, e := range c.engines {
		e.Reset(takes, parts)
	}
}

// prepare creates what the jobs refer to.
func (c *crowd) prepare() {
	c.owner = c.User(0)
	c.source = "inputs/" + c.owner + "/source"
	c.Put(c.source)
	film, err := json.Marshal(timeline.Legacy("video", time.Second))
	if err != nil {
		c.T.Fatal(err)
	}
	c.spec = fmt.Sprintf(`{"timeline":%s,"sources":{"video":{"object":%q,"sha256":""}}}`, film, c.source)
}

// enqueue inserts jobs in one transaction: listeners wake once, to a full queue. It returns the database's time of the
// insert.
func (c *crowd) enqueue(batch string, n int) (atMs int64) {
	ctx := c.T.Context()
	err := c.DB.InTx(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO jobs (id, kind, user_id, state, source_duration_ms, created_at)
			SELECT 'rnd-' || $1 || lpad(i::text, 8, '0'), 'render', $2, 'PENDING', 1000, now_ms() FROM generate_series(1, $3::int) AS i`,
			batch, c.owner, n); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO renders (job_id, spec, output_kind) SELECT id, $1, 'video' FROM jobs`, c.spec); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO held_objects (job_id, object_key) SELECT id, $1 FROM jobs`, c.source); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO render_turns (user_id, next_created_at, next_job_id) SELECT user_id, created_at, id
			FROM jobs ORDER BY created_at, id LIMIT 1
			ON CONFLICT (user_id) DO UPDATE SET next_created_at = excluded.next_created_at, next_job_id = excluded.next_job_id`); err != nil {
			return err
		}
		if err := tx.Notify(ctx, db.ForWorkers+"render"); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `SELECT now_ms()`).Scan(&atMs)
	})
	if err != nil {
		c.T.Fatal(err)
	}
	return atMs
}

func (c *crowd) completed() int64 {
	return c.Number(`SELECT COUNT(*) FROM jobs WHERE state = 'COMPLETED'`)
}

// sessions selects the sessions of this database except our own.
const sessions = `pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`

// idle waits until every worker listens and has found the queue empty.
func (c *crowd) idle() {
	c.Eventually("all workers listen and are idle", func() bool {
		return c.Number(`SELECT COUNT(*) FROM `+sessions+` AND query LIKE 'LISTEN%' AND state = 'idle'`) == int64(len(c.pools)) &&
			c.Number(`SELECT COUNT(*) FROM `+sessions+` AND (state <> 'idle' OR state_change > now() - interval '100 ms')`) == 0
	})
}

// measured is what a run of jobs took.
type measured struct {
	wall         time.Duration // to the end of the last job
	transactions float64
	cpu          time.Duration // of PostgreSQL
}

// run submits n jobs, which together take ideal at best, and waits until they are rendered. Then it stops the workers
// and closes their connections, which makes PostgreSQL count what they did.
func (c *crowd) run(n int, ideal time.Duration) (m measured) {
	// Sessions count their transactions late, at the latest when they end. Count those of the open sessions first.
	for _, d := range append([]*db.DB{c.DB}, c.pools...) {
		if _, err := d.Exec(c.T.Context(), `SELECT pg_stat_force_next_flush()`); err != nil {
			c.T.Fatal(err)
		}
	}
	// The postmaster is the parent of this connection's server process.
	postmaster := benchtest.Parent(int(c.Number(`SELECT pg_backend_pid()`)))
	if postmaster == 0 {
		c.T.Fatal("PostgreSQL must run on this machine")
	}
	transactions, cpu := c.transactions(), benchtest.FamilyCPU(postmaster)
	from := c.enqueue("batch", n)
	limit := 2*time.Minute + 4*ideal
	// Ask the engines, and the database only when they are done, because the workers' queries are measured.
	c.Within(limit, "all films made", func() bool { return c.made() >= n })
	c.Within(limit, "all jobs completed", func() bool { return c.completed() == int64(n) })
	m.cpu = benchtest.FamilyCPU(postmaster) - cpu
	for i, stop := range c.stops {
		stop()
		if err := c.pools[i].Close(); err != nil {
			c.T.Error(err)
		}
	}
	c.Eventually("sessions ended", func() bool { return c.Number(`SELECT COUNT(*) FROM `+sessions) == 0 })
	m.transactions = float64(c.transactions() - transactions)
	m.wall = time.Duration(c.Number(`SELECT MAX(finished_at) FROM jobs`)-from) * time.Millisecond
	return m
}

// made counts the films that are made.
func (c *crowd) made() (n int) {
	for _, e := range c.engines {
		for _, f := range e.Films() {
			if !f.Ended.IsZero() {
				n++
			}
		}
	}
	return n
}

// transactions counts the workers' transactions: all but the harness's queries.
func (c *crowd) transactions() int64 {
	c.Number(`SELECT COUNT(pg_stat_force_next_flush())`)
	asked := c.Queries()
	return c.Number(`SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()`) - asked
}
