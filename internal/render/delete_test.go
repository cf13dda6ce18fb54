package render

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"cutroom/internal/dbtest"
	"cutroom/internal/diskcache"
	"cutroom/internal/engine"
	"cutroom/internal/objectstore"
)

// If a film is deleted, its assistants and a worker that waits for their parts stop at once.
func TestDeletionStopsEveryReplica(t *testing.T) {
	r := newHarness(t, dbtest.Postgres(t))
	r.shareBucket()
	cache := r.partCache()
	for range 2 {
		r.run(r.service(&simulated{takes: time.Hour, parts: 4, cache: cache}, r.db))
	}
	owner := r.user()
	// A worker without the notification notices when it renews its lease, a second after the
	// claim. One of so many is not held up by what else the machine does.
	quickest := time.Hour
	for range 20 {
		ids, _ := r.enqueue(1, owner, r.source(owner))
		r.eventually("both replicas work on the film", time.Minute, func() bool {
			return r.number(`SELECT COUNT(*) FROM render_parts WHERE state = 'MAKING'`) == 2
		})
		began := time.Now()
		if err := r.service(nil, r.db).Delete(t.Context(), owner, ids[0]); err != nil {
			t.Fatal(err)
		}
		r.eventually("no work folder", time.Minute, func() bool { return len(r.folders()) == 0 })
		quickest = min(quickest, time.Since(began))
	}
	if quickest > time.Second/2 {
		t.Errorf("both replicas stop %v after a deletion", quickest)
	}
}

func (r *harness) partCache() engine.PartCache {
	r.t.Helper()
	local, err := diskcache.New(diskcache.Config{Dir: r.t.TempDir()})
	if err != nil {
		r.t.Fatal(err)
	}
	return NewSharedCache(local, r.bucket)
}

// folders lists the contents of all replicas' work folders.
func (r *harness) folders() (left []string) {
	for n := range r.serial.Load() + 1 {
		dir := fmt.Sprintf("%s/replica-%d", r.dir, n)
		entries, _ := os.ReadDir(dir) // not all numbers are a replica's
		for _, e := range entries {
			left = append(left, e.Name())
		}
	}
	return left
}

// In any order of moves by workers, assistants, sweeps and deletions, also at once, each
// render is deleted once, and nothing of it remains or comes back.
func TestDeletionsAmongAllMoves(t *testing.T) {
	if err := flag.Set("rapid.checks", "8"); err != nil {
		t.Fatal(err)
	}
	eachDatabase(t, func(t *testing.T, r *harness) {
		r.shareBucket()
		cache := r.partCache()
		rapid.Check(t, func(rt *rapid.T) {
			defer r.exec(`DELETE FROM users`)
			owner := r.user()
			ids, _ := r.enqueue(5, owner, r.source(owner))
			deleted := r.interleave(rt, owner, ids, cache)
			for _, id := range ids {
				r.judge(id, deleted[id])
			}
			if left := r.folders(); len(left) > 0 {
				t.Errorf("work folders left: %v", left)
			}
		})
	})
}

// interleave runs everything at once, and returns how often each job was deleted.
func (r *harness) interleave(rt *rapid.T, owner string, ids []string, cache engine.PartCache) map[string]int {
	ctx := r.t.Context()
	var mu sync.Mutex
	deleted := map[string]int{}
	ops := rapid.SliceOfN(rapid.SampledFrom([]string{"work", "work", "work", "assist", "delete", "delete", "die", "sweep"}), 10, 30).Draw(rt, "ops")
	var all sync.WaitGroup
	for _, op := range ops {
		id, takes := rapid.SampledFrom(ids).Draw(rt, "job"), rapid.IntRange(0, 6).Draw(rt, "takes")
		e := &simulated{takes: time.Duration(takes) * time.Millisecond, parts: takes % 3, cache: cache}
		if takes == 5 {
			e.fails = func() error { return errInternal }
		}
		s := r.service(e, r.db)
		all.Go(func() {
			var err error
			switch op {
			case "work":
				work, cancel := context.WithCancel(ctx)
				defer cancel()
				if takes == 6 {
					time.AfterFunc(time.Millisecond, cancel) // the service stops
				}
				j, ok, claimErr := s.claim(work)
				if err = claimErr; ok && err == nil {
					s.work(work, j)
				}
				if work.Err() != nil {
					err = nil
				}
			case "assist":
				if a, takeErr := s.claimPart(ctx); a != nil {
					a.assist()
				} else {
					err = takeErr
				}
			case "delete":
				if err = s.Delete(ctx, owner, id); err == nil {
					mu.Lock()
					deleted[id]++
					mu.Unlock()
				} else if errors.Is(err, errUnknownJob) {
					err = nil
				}
			case "die":
				_, err = r.db.Exec(ctx, `UPDATE render_jobs SET lease_until = 0 WHERE id = $1 AND lease_until IS NOT NULL`, id)
			case "sweep":
				err = s.SweepJobs(ctx)
			}
			if err != nil {
				r.t.Errorf("%s: %v", op, err)
			}
		})
		if takes%2 == 0 {
			all.Wait() // some at once, some one after another
		}
	}
	all.Wait()
	return deleted
}

// judge checks the invariants of a job when all work has ended.
func (r *harness) judge(id string, deleted int) {
	r.t.Helper()
	var state, output string
	var hidden int
	if err := r.db.QueryRow(r.t.Context(), `SELECT state, COALESCE(output_key, ''), CASE WHEN deleted_at IS NULL THEN 0 ELSE 1 END
		FROM render_jobs WHERE id = $1`, id).Scan(&state, &output, &hidden); err != nil {
		r.t.Fatal(err)
	}
	films := 0
	for _, prefix := range []string{"render/" + id + "/", "uploads/" + id + "/"} {
		if err := r.store.List(r.t.Context(), prefix, func(objectstore.Info) error { films++; return nil }); err != nil {
			r.t.Fatal(err)
		}
	}
	rows := r.number(`SELECT (SELECT COUNT(*) FROM render_parts WHERE job_id = $1) + (SELECT COUNT(*) FROM render_sources WHERE job_id = $1)`, id)
	over := state == StateCompleted || state == StateFailed
	what := fmt.Sprintf("%s: %s, output %q, deleted %d times, %d objects, %d rows of parts and sources", id, state, output, deleted, films, rows)
	switch {
	case hidden != deleted:
		r.t.Errorf("hidden %d: %s", hidden, what)
	case deleted > 0 && (!over || output != "" || films > 0):
		r.t.Errorf("something is left: %s", what)
	case over && rows > 0:
		r.t.Errorf("rows are left: %s", what)
	case deleted == 0 && state == StateCompleted && films == 0:
		r.t.Errorf("a film is lost: %s", what)
	}
}
