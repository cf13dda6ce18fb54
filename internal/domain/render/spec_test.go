package render

import (
	"errors"
	"testing"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/testkit/jobtest"
)

// A failed render keeps its request as long as its inputs, if it is one of the account's newest. That a completed or
// deleted one keeps none is an invariant.
func TestFailedRendersKeepTheirRequest(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		r := newHarness(t, d)
		owner := r.User(0)
		kept := func() int64 {
			return r.Number(`SELECT COUNT(*) FROM jobs JOIN renders ON job_id = id WHERE state = 'FAILED' AND spec <> ''`)
		}
		s := r.service(&jobtest.Engine{Fails: func() error { return errors.New("broken") }}, d)
		stop := r.run(s)
		r.enqueue(22, owner, r.source(owner))
		r.Exec(`UPDATE jobs SET attempts = 2`)
		r.waitFor(22, StateFailed)
		stop()
		// Jobs that failed in the same millisecond stay together.
		if n := kept(); n < 20 || n > 21 {
			t.Errorf("%d of 22 failed jobs keep their request, want the newest 20", n)
		}

		// The hourly sweep takes more than one batch.
		r.Exec(`INSERT INTO jobs (id, kind, user_id, state, source_duration_ms, created_at, finished_at)
			SELECT 'rnd-old-' || a.id || b.id || c.id, 'render', $1, 'FAILED', 0, now_ms(), now_ms()
			FROM jobs a, jobs b, (SELECT id FROM jobs LIMIT 3) c`, owner)
		r.finish("{}")
		if n := kept(); n <= expireBatch {
			t.Fatalf("%d rows fit into one batch", n)
		}
		r.Exec(`UPDATE jobs SET finished_at = finished_at - $1`, 2*time.Hour.Milliseconds())
		s.JobLifetime = 24 * time.Hour
		if err := s.Expire(t.Context()); err != nil || kept() != 0 {
			t.Errorf("%d failed jobs keep their request when their inputs are gone (%v)", kept(), err)
		}
	})
}
