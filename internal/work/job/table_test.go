// Moves of a job by several workers at once, late workers, deletion, and the totals of ended jobs.

package job_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/testkit/jobtest"
	"cutroom/internal/work/job"
	"cutroom/test/invariants"
)

// totals compares job_days with the rows of jobs.
func totals(h *jobtest.Harness) {
	h.T.Helper()
	if what := invariants.Totals(h.T.Context(), h.DB); what != "" {
		h.T.Error(what)
	}
}

// Several workers try to move a job at once, and exactly one succeeds. The owner's line is kept once for each move,
// the end happens once, and the totals count it once.
func TestAJobIsMovedOnce(t *testing.T) {
	t.Parallel()
	fail := fault.Failedf(fault.Stale, "too late")
	moves := map[string]func(ctx context.Context, table job.Table, tx *db.Tx, c job.Claim) (bool, error){
		"complete": func(ctx context.Context, table job.Table, tx *db.Tx, c job.Claim) (bool, error) {
			err := table.CompleteIn(ctx, tx, c, job.Completion{State: "COMPLETED", StoredBytes: 7})
			if errors.Is(err, job.ErrMoved) {
				return false, nil
			}
			return err == nil, err
		},
		"fail": func(ctx context.Context, table job.Table, tx *db.Tx, c job.Claim) (bool, error) {
			ends, err := table.FailAll(ctx, tx, fail, nil, job.SQL(`id = $1 AND `+job.Unfinished, c.ID))
			return len(ends) == 1, err
		},
		"run again": func(ctx context.Context, table job.Table, tx *db.Tx, c job.Claim) (bool, error) {
			return table.Move(ctx, tx, c.ID, "FAILED", "PENDING", job.SQL(`fence = fence + 1`), job.SQL(`fence = $1`, c.Fence))
		},
		"claim": func(ctx context.Context, table job.Table, tx *db.Tx, c job.Claim) (bool, error) {
			_, ok, err := table.Take(ctx, tx, job.Pick{From: "PENDING", To: "PROCESSING", Job: job.SQL(`SELECT id FROM jobs WHERE id = $1`, c.ID)})
			return ok, err
		},
	}
	from := map[string]string{"complete": "PROCESSING", "fail": "PROCESSING", "run again": "FAILED", "claim": "PENDING"}
	eachDatabase(t, func(t *testing.T, h *jobtest.Harness) {
		for name, move := range moves {
			c := claim(h, "me")
			h.Exec(`DELETE FROM job_days`)
			h.Exec(`DELETE FROM jobs WHERE id <> $1`, c.ID)
			if from[name] != "PROCESSING" {
				h.Exec(`UPDATE jobs SET state = $2 WHERE id = $1`, c.ID, from[name])
			}
			if from[name] == "FAILED" {
				h.Exec(`INSERT INTO job_days SELECT 'render', created_at / 86400000, 'FAILED', 1, 1, 61000 FROM jobs`)
			}
			var mu sync.Mutex
			moved, kept, ended := 0, 0, 0
			table := renders(h.DB, t.TempDir())
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					mine, line := table, false
					ends := 0
					mine.Line = func(_ context.Context, _ *db.Tx, owners []string) error {
						line = slices.Equal(owners, []string{c.UserID})
						return nil
					}
					mine.Ended = func(context.Context, *db.Tx, job.End) error { ends++; return nil }
					ok := false
					err := h.DB.InTx(t.Context(), func(tx *db.Tx) (err error) {
						ok, err = move(t.Context(), mine, tx, c)
						return err
					})
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
					mu.Lock()
					defer mu.Unlock()
					ended += ends
					if ok {
						moved++
					}
					if line {
						kept++
					}
				})
			}
			all.Wait()
			ends := 0
			if name == "complete" || name == "fail" {
				ends = 1
			}
			if moved != 1 || kept != 1 || ended != ends {
				t.Errorf("%s: moved %d times, line kept %d times, ended %d times", name, moved, kept, ended)
			}
			totals(h)
		}
	})
}

// requeueDead puts the jobs whose workers died back into the queue.
func requeueDead(h *jobtest.Harness, table job.Table) {
	h.T.Helper()
	if err := table.Sweep(h.T.Context(), job.SQL(job.Expired+` AND j.state = $1`, "PROCESSING"), func(job.Claim, bool) job.Outcome {
		return job.Outcome{Return: &job.Return{To: "PENDING", Lost: true}}
	}); err != nil {
		h.T.Fatal(err)
	}
}

// A worker that was declared dead and comes back writes nothing: neither the job nor its details.
func TestALateWorkerWritesNothing(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, h *jobtest.Harness) {
		c := claim(h, "me")
		table, ctx := renders(h.DB, t.TempDir()), t.Context()
		if requeueDead(h, table); h.Number(`SELECT COUNT(*) FROM jobs WHERE state = 'PROCESSING' AND fence = 1`) != 1 {
			t.Fatal("a living worker lost its job")
		}
		h.Exec(`UPDATE jobs SET lease_until = now_ms() - 1`)
		requeueDead(h, table)
		for what, write := range map[string]func() error{
			"progress": func() error { return table.Progress(ctx, c, 50, job.SQL(`spec = 'late'`)) },
			"guard": func() error {
				return h.DB.InTx(ctx, func(tx *db.Tx) error { return table.Guard(ctx, tx, c) })
			},
			"attempt": func() error { return table.Begin(ctx, c) },
			"end": func() error {
				return h.DB.InTx(ctx, func(tx *db.Tx) error {
					return table.CompleteIn(ctx, tx, c, job.Completion{State: "COMPLETED", Set: job.SQL(`spec = 'late'`)})
				})
			},
		} {
			if err := write(); !errors.Is(err, job.ErrMoved) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if n := h.Number(`SELECT COUNT(*) FROM jobs JOIN renders ON job_id = id WHERE state = 'PENDING' AND progress = 0 AND attempts = 0
			AND spec = '' AND failure_cause = 'lost workers: me'`); n != 1 {
			t.Error("a late worker wrote")
		}
	})
}

// Totals are exact when jobs end, and do not fall when jobs or accounts are deleted.
func TestTotalsNeverFall(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, h *jobtest.Harness) {
		ctx, table := t.Context(), renders(h.DB, t.TempDir())
		keeps, goes := h.User(0), h.User(0)
		for i, owner := range []string{keeps, keeps, keeps, goes, goes} {
			add(h, fmt.Sprintf("rnd-%d", i), owner, "PENDING")
		}
		counted := func(what string, want, wantMs int64) {
			t.Helper()
			if n, ms := h.Number(`SELECT SUM(jobs) FROM job_days WHERE state = 'FAILED'`), h.Number(`SELECT SUM(source_duration_ms) FROM job_days`); n != want || ms != wantMs {
				t.Errorf("%s: %d jobs of %d ms, want %d of %d", what, n, ms, want, wantMs)
			}
		}
		if err := h.DB.InTx(ctx, func(tx *db.Tx) error {
			_, err := table.FailAll(ctx, tx, fault.Failedf(fault.Stale, "late"), nil, job.SQL(`id IN ('rnd-0', 'rnd-1', 'rnd-3')`))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		totals(h)
		if err := h.DB.InTx(ctx, func(tx *db.Tx) error { return job.Forget(ctx, tx, goes) }); err != nil {
			t.Fatal(err)
		}
		counted("after the deletion of an account with an ended and a waiting job", 4, 4*61000)
		h.Exec(`UPDATE jobs SET created_at = created_at - 7200000, finished_at = finished_at - 7200000 WHERE id = 'rnd-0' AND created_at / 86400000 = (created_at - 7200000) / 86400000`)
		if err := table.Expire(ctx, time.Hour, "FAILED", ""); err != nil {
			t.Fatal(err)
		}
		counted("after the expiry of a job", 4, 4*61000)
	})
}

// A deleted job ends without a reason for anyone but support, and its files count no longer.
func TestADeletedJobCountsNothing(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, h *jobtest.Harness) {
		c := claim(h, "me")
		h.Exec(`UPDATE jobs SET stored_bytes = 5`)
		table, ctx := renders(h.DB, t.TempDir()), t.Context()
		table.Unknown = errors.New("unknown")
		var ends []job.End
		table.Ended = func(_ context.Context, _ *db.Tx, e job.End) error { ends = append(ends, e); return nil }
		remove := func() error {
			return table.Delete(ctx, c.UserID, c.ID, func(tx *db.Tx) error {
				_, err := table.FailAll(ctx, tx, fault.Failedf(fault.Interrupted, "Deleted"), nil, job.SQL(`id = $1 AND `+job.Unfinished, c.ID))
				return err
			}, func(context.Context) error { return nil })
		}
		if err := remove(); err != nil || len(ends) != 1 || !ends[0].Deleted {
			t.Errorf("%v, %+v", err, ends)
		}
		if err := remove(); !errors.Is(err, table.Unknown) {
			t.Errorf("deleted twice: %v", err)
		}
		if err := h.DB.InTx(ctx, func(tx *db.Tx) error { return job.CountBytes(ctx, tx, c.ID, 9) }); err != nil {
			t.Fatal(err)
		}
		if n := h.Number(`SELECT stored_bytes FROM jobs`); n != 0 {
			t.Errorf("%d bytes of a deleted job count", n)
		}
		totals(h)
	})
}
