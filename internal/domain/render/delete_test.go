// Deletion of renders and accounts beside workers, assistants and sweeps, in any order.

package render

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"

	"cutroom/internal/film/engine"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/testkit/jobtest"
)

// folders lists the contents of all replicas' work folders.
func (r *harness) folders() (left []string) {
	for n := range r.serial.Load() + 1 {
		dir := fmt.Sprintf("%s/replica-%d", r.Dir, n)
		entries, _ := os.ReadDir(dir) // fails for numbers without a replica
		for _, e := range entries {
			left = append(left, e.Name())
		}
	}
	return left
}

// If a worker stores files after its film or the owner's account was erased, it deletes them when it stops. An
// assistant does the same.
func TestNothingStoredAfterAnErasureStays(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		r.UseBucket()
		for _, tt := range []struct {
			what                string
			account, assistance bool
		}{{what: "film"}, {what: "account", account: true}, {what: "assisted account", account: true, assistance: true}} {
			owner := r.User(0)
			id := r.enqueue(1, owner, r.source(owner))[0]
			late := []string{"render/" + id + "/film", "uploads/" + id + "/clip"}
			if tt.account {
				late = append(late, "parts/"+owner+"/part")
			}
			film := r.service(nil, r.DB)
			erase := func() {
				var err error
				if tt.account {
					r.Exec(`UPDATE users SET erasing_at = now_ms() WHERE id = $1`, owner)
					err = film.Erase(t.Context(), owner)
				} else {
					err = film.Delete(t.Context(), owner, id)
				}
				if err != nil {
					t.Errorf("%s: %v", tt.what, err)
				}
				for _, key := range late {
					r.Put(key)
				}
			}
			s := r.service(&jobtest.Engine{Fails: func() error { erase(); return errInternal }, Helps: erase}, r.DB)
			if tt.assistance {
				r.announce(film, r.claimed(film).ID)
				r.assistant(s).assist()
			} else {
				s.work(t.Context(), r.claimed(s))
			}
			for _, key := range late {
				if left := r.Keys(key); len(left) > 0 {
					t.Errorf("%s: left %v", tt.what, left)
				}
			}
		}
	})
}

// In any order of operations by workers, assistants, sweeps and deletions, sequential or concurrent, each render is
// deleted once, and nothing of it is left or comes back.
func TestDeletionsAmongAllMoves(t *testing.T) {
	if err := flag.Set("rapid.checks", "8"); err != nil {
		t.Fatal(err)
	}
	eachDatabase(t, func(t *testing.T, r *harness) {
		r.UseBucket()
		cache := r.partCache()
		rapid.Check(t, func(rt *rapid.T) {
			defer r.Exec(`DELETE FROM users`)
			owner := r.User(0)
			ids := r.enqueue(5, owner, r.source(owner))
			deleted := r.interleave(t, rt, owner, ids, cache)
			for _, id := range ids {
				r.judge(id, deleted[id])
			}
			if left := r.folders(); len(left) > 0 {
				t.Errorf("work folders left: %v", left)
			}
		})
	})
}

// interleave performs operations of workers, assistants, sweeps and deletions on jobs.
func (r *harness) interleave(t *testing.T, rt *rapid.T, owner string, ids []string, cache engine.PartCache) map[string]int {
	ctx := t.Context()
	operations := []string{"work", "work", "work", "assist", "delete", "delete", "die", "sweep"}
	return jobtest.Interleave(t, rt, ids, operations, func(operation, id string, n int) (deleted bool, err error) {
		takes := n % 7
		e := &jobtest.Engine{Takes: time.Duration(takes) * time.Millisecond, Parts: takes % 3, Cache: cache}
		if takes == 5 {
			e.Fails = func() error { return errInternal }
		}
		s := r.service(e, r.DB)
		switch operation {
		case "work":
			work, cancel := context.WithCancel(ctx)
			defer cancel()
			if takes == 6 {
				time.AfterFunc(time.Millisecond, cancel) // the service stops
			}
			j, ok, err := s.claim(work)
			if ok && err == nil {
				s.work(work, j)
			}
			if work.Err() == nil {
				return false, err
			}
		case "assist":
			a, err := s.claimPart(ctx)
			if a != nil {
				a.assist()
			}
			return false, err
		case "delete":
			if err = s.Delete(ctx, owner, id); errors.Is(err, errUnknownJob) {
				return false, nil
			}
			return err == nil, err
		case "die":
			_, err = r.DB.Exec(ctx, `UPDATE jobs SET lease_until = 0 WHERE id = $1 AND lease_until IS NOT NULL`, id)
		case "sweep":
			err = s.SweepJobs(ctx)
		}
		return false, err
	})
}

// judge checks the invariants of a job after all work has ended.
func (r *harness) judge(id string, deleted int) {
	r.T.Helper()
	var state, output string
	var hidden int
	if err := r.DB.QueryRow(r.T.Context(), `SELECT state, COALESCE(output_key, ''), CASE WHEN deleted_at IS NULL THEN 0 ELSE 1 END
		FROM jobs JOIN renders ON job_id = id WHERE id = $1`, id).Scan(&state, &output, &hidden); err != nil {
		r.T.Fatal(err)
	}
	films := 0
	for _, prefix := range []string{"render/" + id + "/", "uploads/" + id + "/"} {
		if err := r.Store.List(r.T.Context(), prefix, func(objectstore.Info) error { films++; return nil }); err != nil {
			r.T.Fatal(err)
		}
	}
	rows := r.Number(`SELECT (SELECT COUNT(*) FROM render_parts WHERE job_id = $1) + (SELECT COUNT(*) FROM held_objects WHERE job_id = $1)`, id)
	over := state == StateCompleted || state == StateFailed
	what := fmt.Sprintf("%s: %s, output %q, deleted %d times, %d objects, %d rows of parts and sources", id, state, output, deleted, films, rows)
	switch {
	case hidden != deleted:
		r.T.Errorf("hidden %d: %s", hidden, what)
	case deleted > 0 && (!over || output != "" || films > 0):
		r.T.Errorf("files are left: %s", what)
	case over && rows > 0:
		r.T.Errorf("rows are left: %s", what)
	case deleted == 0 && state == StateCompleted && films == 0:
		r.T.Errorf("a film is lost: %s", what)
	}
}
