// What a worker does with a job that it cannot do or finish: lack of disk space, outages, panics, errors, time limits.

package render

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/film/engine"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/testkit/jobtest"
	"cutroom/internal/work/job"
)

// A panic while claiming a job leaks no slot.
func TestASlotOutlivesAPanic(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		s := r.service(&jobtest.Engine{}, r.DB)
		var asked atomic.Int64
		s.CanWork = func(context.Context) (int64, error) {
			if asked.Add(1) == 1 {
				panic("boom")
			}
			return 1 << 40, nil
		}
		r.enqueue(1, r.User(0), nil)
		r.run(s)
		r.waitFor(1, StateCompleted)
	})
}

// A replica that cannot work takes no job, and one that cannot finish a job leaves it to another replica, without a
// lost attempt. It tries each job only once.
func TestAReplicaLeavesWhatItCannotDo(t *testing.T) {
	for name, tt := range map[string]struct {
		free  int64
		able  func(films int) bool // after so many films
		fails error
		left  int
	}{
		"the disk is full":       {able: func(int) bool { return false }},
		"jobs fill the disk":     {free: 1 << 30, able: func(int) bool { return true }, fails: engine.ErrNoSpace, left: 20},
		"ffmpeg breaks meantime": {free: 1, able: func(films int) bool { return films == 0 }, fails: fault.Invalidf("segments[0]: the video could not be decoded"), left: 1},
	} {
		t.Run(name, func(t *testing.T) {
			eachDatabase(t, func(t *testing.T, r *harness) {
				films := &jobtest.Engine{Fails: func() error { return tt.fails }}
				s := r.service(films, r.DB)
				s.CanWork = func(context.Context) (int64, error) {
					if tt.able(len(films.Films())) {
						return tt.free, nil
					}
					return tt.free, errors.New("cannot work")
				}
				log := logged(s)
				r.enqueue(20, r.User(0), nil)
				stop := r.run(s)
				r.Eventually("handed back", func() bool {
					return r.Number(`SELECT COUNT(*) FROM jobs WHERE state = 'PENDING' AND fence > 0 AND attempts = 0`) == int64(tt.left)
				})
				r.run(r.service(&jobtest.Engine{}, r.DB))
				r.waitFor(20, StateCompleted)
				if n := r.Number(`SELECT COUNT(*) FROM jobs WHERE attempts <> 1 OR error IS NOT NULL`); n != 0 {
					t.Errorf("%d jobs lost an attempt", n)
				}
				stop() // the service may write a log line after it updates the row
				if n := len(films.Films()); n != tt.left || strings.Contains(log.String(), "level=ERROR") || strings.Contains(log.String(), "level=WARN") {
					t.Errorf("%d films, log:\n%s", n, log)
				}
			})
		})
	}
}

func TestJobsFailForLackOfDiskSpaceOnlyIfNoReplicaHasEnough(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		announce := func(bytes int64) {
			if bytes < 0 { // no replica lives
				r.Exec(`DELETE FROM replicas`)
				return
			}
			r.Exec(`INSERT INTO replicas (id, slots, free_bytes, seen_at) VALUES ('r', 1, $1, now_ms())
				ON CONFLICT (id) DO UPDATE SET free_bytes = excluded.free_bytes, seen_at = excluded.seen_at`, bytes)
		}
		s := r.service(&jobtest.Engine{}, r.DB)
		sweep := func() {
			t.Helper()
			if err := s.SweepJobs(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		age := func() {
			r.Exec(`UPDATE renders SET short_since = short_since - $1`, (waitTimeout + time.Second).Milliseconds())
		}
		r.enqueue(2, r.User(0), nil)
		large := r.enqueue(1, r.User(0), nil)
		r.Exec(`UPDATE renders SET needs_bytes = 1000 WHERE job_id = $1`, large[0])
		for _, step := range []struct {
			free    int64
			waiting int64 // after half an hour
		}{{-1, 3}, {1000, 3}, {999, 2}, {-1, 2}, {0, 0}} {
			announce(step.free)
			sweep()
			age()
			if step.free > 0 { // a replica now has room
				announce(step.free)
			}
			sweep()
			if n := r.in(StatePending); n != step.waiting {
				t.Errorf("with %d bytes free %d jobs wait, want %d", step.free, n, step.waiting)
			}
		}
		if n := r.Number(`SELECT COUNT(*) FROM jobs WHERE state = 'FAILED' AND error = $1 AND error_code = 'stale'`, errNoRoom.Sentence); n != 3 {
			t.Errorf("%d jobs have the reason", n)
		}
	})
}

// A replica with room may claim a job and hand it back while a sweep is about to fail it for lack of room.
func TestAJobThatFoundRoomOutlivesASweep(t *testing.T) {
	r := newHarness(t, dbtest.Postgres(t))
	s := r.service(&jobtest.Engine{}, r.DB)
	id := r.enqueue(1, r.User(0), nil)[0]
	r.Exec(`UPDATE renders SET needs_bytes = 1000, short_since = 0`)
	var sweep errgroup.Group
	err := r.DB.InTx(t.Context(), func(tx *db.Tx) error {
		for _, query := range []string{`UPDATE jobs SET fence = fence + 2 WHERE id = $1`, `UPDATE renders SET short_since = NULL WHERE job_id = $1`} {
			if _, err := tx.Exec(t.Context(), query, id); err != nil {
				return err
			}
		}
		sweep.Go(func() error { return s.SweepJobs(t.Context()) })
		r.untilBlocked()
		return nil
	})
	if err = errors.Join(err, sweep.Wait()); err != nil {
		t.Fatal(err)
	}
	if r.in(StatePending) != 1 {
		t.Error("the job failed")
	}
}

// A short database outage during a render, or at its end, costs no attempt.
func TestAShortOutageOfTheDatabaseCostsNoAttempt(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		var calls atomic.Int64
		films := &jobtest.Engine{Fails: func() error {
			if calls.Add(1) == 1 {
				return fmt.Errorf("share parts: %w", db.ErrUnavailable)
			}
			return nil
		}}
		if r.DB.Postgres() {
			// The first hand-back and the first completion fail.
			r.Exec(`CREATE SEQUENCE outage`)
			r.Exec(`CREATE FUNCTION away() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF nextval('outage') IN (1, 3) THEN RAISE EXCEPTION USING ERRCODE = '57P01'; END IF;
				RETURN NEW; END $$`)
			r.Exec(`CREATE TRIGGER away BEFORE UPDATE ON jobs FOR EACH ROW
				WHEN (OLD.state = 'PROCESSING' AND NEW.state <> OLD.state) EXECUTE FUNCTION away()`)
		}
		r.enqueue(1, r.User(0), nil)
		r.run(r.service(films, r.DB))
		r.waitFor(1, StateCompleted)
		if n := r.Number(`SELECT attempts FROM jobs`); n != 1 || calls.Load() != 2 {
			t.Errorf("%d attempts count, %d films", n, calls.Load())
		}
	})
}

// An unexpected error costs an attempt. The log reports it after the last attempt.
func TestUnexplainedFailuresAreTriedAgain(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		var calls atomic.Int64
		passing := &jobtest.Engine{Fails: func() error {
			if calls.Add(1) == 1 {
				return errors.New("boom")
			}
			return nil
		}}
		s := r.service(passing, r.DB)
		log := logged(s)
		r.enqueue(1, r.User(0), nil)
		stop := r.run(s)
		r.waitFor(1, StateCompleted)
		stop()
		if n := r.Number(`SELECT attempts FROM jobs`); n != 2 || strings.Contains(log.String(), "level=ERROR") {
			t.Errorf("%d attempts, log:\n%s", n, log)
		}

		failing := r.service(&jobtest.Engine{Fails: func() error { return errors.New("boom") }}, r.DB)
		log = logged(failing)
		r.enqueue(1, r.User(0), nil)
		r.run(failing)
		r.waitFor(1, StateFailed)
		r.Eventually("reported", func() bool { return strings.Contains(log.String(), "level=ERROR") })
		if n := r.Number(`SELECT attempts FROM jobs WHERE state = 'FAILED' AND error = $1 AND error_code = 'internal'`, errInternal.Sentence); n != job.MaxAttempts {
			t.Errorf("%d attempts", n)
		}
		if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
			t.Errorf("%d errors logged:\n%s", n, log)
		}
	})
}

func TestAJobWhoseSpecOrSourceCannotBeReadFails(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		s, owner := r.service(&jobtest.Engine{}, r.DB), r.User(0)
		failed := func(id string, want fault.Reason) {
			t.Helper()
			if st, err := s.Status(t.Context(), owner, id); err != nil || st.ErrorCode != string(want) || st.Error == "" {
				t.Errorf("%+v (%v), want %s", st, err, want)
			}
		}
		gone := r.enqueue(1, owner, map[string]object{"video": {Object: "uploads/gone"}})
		s.work(t.Context(), r.claimed(s))
		failed(gone[0], fault.SourceMissing)
		unreadable := r.enqueue(1, owner, nil)
		r.Exec(`UPDATE renders SET spec = '{' WHERE job_id = $1`, unreadable[0])
		if _, ok, err := s.claim(t.Context()); ok || err == nil {
			t.Errorf("claimed (%v)", err)
		}
		failed(unreadable[0], fault.Unexplained)
	})
}

func TestTheTimeLimitBeginsWithTheFirstAttempt(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		s := r.service(&jobtest.Engine{Takes: time.Hour}, r.DB)
		s.Timeout = time.Minute
		ids := r.enqueue(2, r.User(0), nil)
		// The first attempt began almost a minute ago, on a replica that crashed.
		r.Exec(`UPDATE jobs SET state = 'PROCESSING', attempts = 1, started_at = now_ms() - 59800, lease_owner = 'lost',
			lease_until = now_ms() - 1 WHERE id = $1`, ids[0])
		r.Exec(`UPDATE jobs SET started_at = now_ms() - 60001 WHERE id = $1`, ids[1]) // it was handed back
		log := logged(s)
		if err := s.SweepJobs(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := r.in(StateFailed); n != 1 {
			t.Errorf("%d waiting jobs are overdue, want 1", n)
		}
		r.run(s)
		r.waitFor(2, StateFailed)
		if n := r.Number(`SELECT COUNT(*) FROM jobs WHERE error = 'The video could not be rendered: it took longer than 1 minutes' AND error_code = 'timed_out'`); n != 2 {
			t.Errorf("%d jobs have the reason", n)
		}
		if !strings.Contains(log.String(), `msg="render requeued`) {
			t.Errorf("the requeue is not logged:\n%s", log)
		}
	})
}
