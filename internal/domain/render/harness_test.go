// The harness of this package: replicas on one database and store, with a simulated engine.

package render

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/domain/asset"
	"cutroom/internal/film/engine"
	"cutroom/internal/film/media"
	"cutroom/internal/film/timeline"
	"cutroom/internal/storage/diskcache"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/testkit/jobtest"
	"cutroom/internal/testkit/logtest"
	"cutroom/internal/work/derived"
	"cutroom/internal/work/job"
	"cutroom/internal/work/sweep"
)

// harness is a database and a store with any number of replicas. Only their engine is simulated.
type harness struct {
	*jobtest.Harness
	serial atomic.Int64
}

func newHarness(t testing.TB, d *db.DB) *harness {
	t.Helper()
	return &harness{Harness: jobtest.New(t, d)}
}

func eachDatabase(t *testing.T, test func(t *testing.T, r *harness)) {
	dbtest.EachParallel(t, func(t *testing.T, d *db.DB) { test(t, newHarness(t, d)) })
}

// source stores an object for jobs to read, such as a cached input of the owner.
func (r *harness) source(owner string) map[string]object {
	r.T.Helper()
	key := inputKey(owner, strings.Repeat("0", 64))
	r.Put(key)
	r.Exec(`INSERT INTO render_inputs (user_id, input_id, sha256, object_key, size_bytes, last_used_at) VALUES ($1, '0', '', $2, 1, now_ms())
		ON CONFLICT DO NOTHING`, owner, key)
	return map[string]object{"video": {Object: key}}
}

// assets are the assets in the bucket, if there is one.
func (r *harness) assets() *asset.Service {
	return asset.New(asset.Options{DB: r.DB, Bucket: r.Bucket})
}

// enqueue inserts jobs as Submit does, and returns their ids in order.
func (r *harness) enqueue(n int, owner string, sources map[string]object) (ids []string) {
	r.T.Helper()
	s := r.service(&jobtest.Engine{}, r.DB)
	sub := Submission{Timeline: timeline.Legacy("video", time.Second)}
	for range n {
		ids = append(ids, fmt.Sprintf("rnd-%08d", r.serial.Add(1)))
	}
	err := r.DB.InTx(r.T.Context(), func(tx *db.Tx) error {
		for _, id := range ids {
			one := resolver{s: s, owner: owner, jobID: id, sub: sub, sources: sources}
			n, err := one.job()
			if err == nil {
				err = s.jobs.Insert(r.T.Context(), tx, n)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		r.T.Fatal(err)
	}
	return ids
}

// untilBlocked waits until a transaction waits for a lock. The calling transaction must hold that lock, and is not the
// one that looks, because a transaction reads pg_stat_activity only once.
func (r *harness) untilBlocked() {
	r.T.Helper()
	for r.Number(`SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 0 {
	}
}

// finish adds what jobs that a test inserted lack: their own rows with a spec, and their owners' turns.
func (r *harness) finish(spec string) {
	r.T.Helper()
	r.Exec(`INSERT INTO renders (job_id, spec, output_kind) SELECT id, $1, 'video' FROM jobs WHERE id NOT IN (SELECT job_id FROM renders)`, spec)
	r.Exec(`INSERT INTO render_turns (user_id) SELECT id FROM users WHERE id NOT IN (SELECT user_id FROM render_turns)`)
	r.Exec(strings.ReplaceAll(strings.TrimSuffix(turnSQL, "WHERE user_id = $1"), "user_id = $1", "user_id = render_turns.user_id"))
}

// specOf returns the spec of a film with n segments.
func specOf(t testing.TB, n int) string {
	t.Helper()
	tl := timeline.Legacy("video", time.Minute)
	for i := 1; i < n; i++ {
		s := tl.Segments[0]
		s.Order = int64(i)
		tl.Segments = append(tl.Segments, s)
	}
	text, err := spec{Timeline: tl, Sources: map[string]object{}}.encode()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// service returns a new replica with one slot, on the connections of d.
func (r *harness) service(e Engine, d *db.DB) *Service {
	r.T.Helper()
	log := slog.New(slog.DiscardHandler)
	name := fmt.Sprintf("replica-%d", r.serial.Add(1))
	work := filepath.Join(r.Dir, name)
	if err := os.MkdirAll(work, 0o700); err != nil {
		r.T.Fatal(err)
	}
	return New(Options{DB: d, Renewer: job.NewRenewer(d, name, log), Store: r.Store, Bucket: r.Bucket, Engine: e,
		Slots: media.NewSlots(1), OnDemand: derived.New(derived.Options{AtOnce: 1, PerHolder: 1, MaxWait: 2 * time.Minute, Space: derived.NewSpace(free(1 << 40)), Log: log}), CanWork: free(1 << 40), Timeout: time.Hour,
		WorkDir: work, InputLifetime: time.Hour, OutputLifetime: time.Hour,
		Sweeper:       sweep.New(sweep.Options{DB: d, Store: r.Store, Rules: SweepRules(time.Hour, time.Hour), Log: log}),
		SignedURLLife: time.Minute, EraseCaches: func(context.Context, string) error { return nil }, Log: log})
}

// run runs a replica and its notifications until stop is called.
func (r *harness) run(s *Service) (stop func()) { return r.Run(jobtest.Notifier(s.DB), s.Run) }

// claimed claims a job with s.
func (r *harness) claimed(s *Service) claimedJob {
	r.T.Helper()
	j, ok, err := s.claim(r.T.Context())
	if err != nil || !ok {
		r.T.Fatalf("claim: %v, %v", ok, err)
	}
	return j
}

// in counts the jobs in a state.
func (r *harness) in(state string) int64 {
	r.T.Helper()
	return r.Number(`SELECT COUNT(*) FROM jobs WHERE state = $1`, state)
}

// waitFor waits until n jobs are in a state.
func (r *harness) waitFor(n int64, state string) {
	r.T.Helper()
	r.Eventually(fmt.Sprintf("%d jobs are %s", n, state), func() bool { return r.in(state) == n })
}

// partCache returns a replica's cache of parts.
func (r *harness) partCache() engine.PartCache {
	r.T.Helper()
	local, err := diskcache.New(diskcache.Config{Dir: r.T.TempDir()})
	if err != nil {
		r.T.Fatal(err)
	}
	return NewSharedCache(local, r.Bucket)
}

// logged makes a replica write its log to the returned buffer.
func logged(s *Service) *logtest.Buffer {
	b := &logtest.Buffer{}
	s.Log = b.Logger()
	s.jobs.Log = s.Log
	return b
}

func free(bytes int64) func(context.Context) (int64, error) {
	return func(context.Context) (int64, error) { return bytes, nil }
}
