package render

import (
	"errors"
	"testing"
	"time"

	"cutroom/internal/db"
	"cutroom/internal/dbtest"
	"cutroom/internal/jobtest"
)

// The row of a completed or deleted render keeps no request. A failed render keeps its request as long
// as its inputs.
func TestEndedRendersKeepNoRequest(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		r := newHarness(t, d)
		owner := r.User(0)
		source := r.source(owner)
		kept := func(state string) int64 {
			return r.Number(`SELECT COUNT(*) FROM jobs JOIN renders ON job_id = id WHERE state = $1 AND spec <> ''`, state)
		}
		ended := func(n int64) func() bool {
			return func() bool { return r.Number(`SELECT COUNT(*) FROM jobs WHERE finished_at IS NOT NULL`) == n }
		}

		stop := r.run(r.service(&jobtest.Engine{}, d))
		r.enqueue(1, owner, source)
		r.Eventually("the film is made", ended(1))
		stop()
		if kept("COMPLETED") != 0 {
			t.Error("a completed render keeps its request")
		}

		stop = r.run(r.service(&jobtest.Engine{Fails: func() error { return errors.New("broken") }}, d))
		r.enqueue(22, owner, source)
		r.Exec(`UPDATE jobs SET attempts = 2 WHERE state = 'PENDING'`)
		r.Eventually("all have failed", ended(23))
		stop()
		// Jobs that failed in the same millisecond stay together.
		if n := kept("FAILED"); n < 20 || n > 21 {
			t.Errorf("%d of 22 failed jobs keep their request, want the newest 20", n)
		}

		s := r.service(&jobtest.Engine{}, d)
		s.JobLifetime = 24 * time.Hour
		ids := r.enqueue(1, owner, source)
		if err := s.Delete(t.Context(), owner, ids[0]); err != nil {
			t.Fatal(err)
		}
		if n := r.Number(`SELECT COUNT(*) FROM renders WHERE job_id = $1 AND spec <> ''`, ids[0]); n != 0 {
			t.Error("a deleted job keeps its request")
		}

		// The hourly sweep takes more than one batch.
		r.Exec(`INSERT INTO jobs (id, kind, user_id, state, source_duration_ms, created_at, finished_at)
			SELECT 'rnd-old-' || a.id || b.id || c.id, 'render', $1, 'FAILED', 0, now_ms(), now_ms()
			FROM jobs a, jobs b, (SELECT id FROM jobs LIMIT 2) c`, owner)
		r.finish("{}")
		if n := kept("FAILED"); n <= expireBatch {
			t.Fatalf("%d rows fit into one batch", n)
		}
		r.Exec(`UPDATE jobs SET finished_at = finished_at - $1 WHERE state = 'FAILED'`, 2*time.Hour.Milliseconds())
		if err := s.Expire(t.Context()); err != nil || kept("FAILED") != 0 {
			t.Errorf("%d failed jobs keep their request when their inputs are gone (%v)", kept("FAILED"), err)
		}
	})
}
