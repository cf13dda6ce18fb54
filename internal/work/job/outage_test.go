package job_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/testkit/jobtest"
	"cutroom/internal/work/job"
)

// A worker stops before its lease expires in an outage. After the outage it still holds the job, unless another worker
// has claimed it.
func TestAttemptOutlastsAnOutage(t *testing.T) {
	t.Parallel()
	for name, taken := range map[string]bool{"nobody claimed it": false, "another worker claimed it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var down atomic.Bool
			direct, lossy := dbtest.Lossy(t, func(*db.DB) bool { return down.Load() })
			h := jobtest.New(t, direct)
			table := renders(lossy, t.TempDir())
			l := claim(h, "me")
			settled := false
			table.Work(t.Context(), l, func(ctx context.Context, _ string) error {
				down.Store(true)
				<-ctx.Done()
				if taken {
					h.Exec(`UPDATE jobs SET fence = 2 WHERE id = $1`, l.ID)
				}
				down.Store(false)
				return context.Cause(ctx)
			}, func(last context.Context, lost bool, err error) {
				settled = true
				if lost != taken || !errors.Is(err, job.ErrOutage) || last.Err() != nil {
					t.Errorf("lost %v, %v", lost, err)
				}
				if left := until(h, l); !taken && left <= 0 {
					t.Errorf("the lease expired %v ago", -left)
				}
			})
			if !settled {
				t.Error("not settled")
			}
		})
	}
}

// A worker does not claim jobs right after an outage, when the leases of living workers may have expired.
func TestClaimsWaitForTheDatabase(t *testing.T) {
	d := dbtest.SQLite(t)
	asked := 0
	work := job.NewRenewer(d, "me", quiet).AfterOutages(func(context.Context) (bool, error) {
		asked++
		return true, errors.New("down")
	})
	for range 2 {
		if _, err := work(t.Context()); err == nil {
			t.Error("a failure is not reported")
		}
		_ = d.Close() // the second call fails
	}
	if asked != 1 {
		t.Errorf("%d attempts to claim a job", asked)
	}
}

// Claims that commit but whose response is lost cost no attempt, because no worker has begun.
func TestLostClaimsCostNoAttempt(t *testing.T) {
	t.Parallel()
	direct, lossy := dbtest.Lossy(t, func(d *db.DB) bool {
		var n int
		err := d.QueryRow(context.WithoutCancel(t.Context()), `SELECT COUNT(*) FROM jobs WHERE lease_until > now_ms()`).Scan(&n)
		return err == nil && n > 0
	})
	h, ctx := jobtest.New(t, direct), t.Context()
	add(h, "rnd-1", h.User(0), "PENDING")
	claim := func(d *db.DB) (ok bool, err error) {
		err = d.InTx(ctx, func(tx *db.Tx) error {
			_, ok, err = renders(d, "").Take(ctx, tx, job.Pick{From: "PENDING", To: "PROCESSING", Job: job.SQL(`SELECT id FROM jobs WHERE state = 'PENDING'`)})
			return err
		})
		return ok && err == nil, err
	}
	for n := range 4 {
		if ok, err := claim(lossy); ok || err == nil {
			t.Fatalf("the response was not lost: %v, %v", ok, err)
		}
		if h.Number(`SELECT COUNT(*) FROM jobs WHERE fence > $1 AND lease_owner IS NOT NULL`, n+1) != 1 {
			t.Fatal("the claim was not committed")
		}
		h.Exec(`UPDATE jobs SET lease_until = 0`)
		requeueDead(h, renders(direct, ""))
	}
	if ok, err := claim(direct); err != nil || !ok || h.Number(`SELECT attempts FROM jobs`) != 0 {
		t.Errorf("claimed %v, %v, after %d attempts", ok, err, h.Number(`SELECT attempts FROM jobs`))
	}
}

// If the answer to the end of an attempt is lost, the next try finds what the first one wrote.
func TestALostAnswerOfAnEndIsFound(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		end   job.Outcome
		state string
		want  job.Result
	}{
		"handed back": {job.Outcome{Return: &job.Return{To: "PENDING"}}, "PENDING", job.Returned},
		"failed":      {job.Outcome{Fail: &job.Ending{Failure: fault.Failedf(fault.Stale, "late")}}, "FAILED", job.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var lost atomic.Bool
			direct, lossy := dbtest.Lossy(t, func(d *db.DB) bool {
				var n int
				err := d.QueryRow(context.WithoutCancel(t.Context()), `SELECT COUNT(*) FROM jobs WHERE state = $1`, tt.state).Scan(&n)
				return err == nil && n > 0 && lost.CompareAndSwap(false, true)
			})
			h := jobtest.New(t, direct)
			got := renders(lossy, t.TempDir()).Apply(t.Context(), claim(h, "me"), tt.end, errors.New("the attempt failed"))
			if got != tt.want || !lost.Load() || h.Number(`SELECT COUNT(*) FROM jobs WHERE state = $1 AND fence = 2`, tt.state) != 1 {
				t.Errorf("%v, want %v (lost %v)", got, tt.want, lost.Load())
			}
		})
	}
}

// A stop of the service does not cut a claim short.
func TestAStopLeavesAClaimWhole(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, h *jobtest.Harness) {
		ctx, stop := context.WithCancel(t.Context())
		add(h, "rnd-1", h.User(0), "PENDING")
		c, ok, err := job.Queue[job.Claim]{Table: renders(h.DB, ""),
			Look: func(context.Context) ([]job.Pick, error) {
				stop()
				return []job.Pick{{From: "PENDING", To: "PROCESSING", Job: job.SQL(`SELECT id FROM jobs WHERE id = $1`, "rnd-1")}}, nil
			},
			Read: func(_ context.Context, _ *db.Tx, c job.Claim) (job.Claim, error) { return c, nil },
		}.Claim(ctx)
		if err != nil || !ok || c.ID != "rnd-1" || c.State != "PROCESSING" || c.Attempts != 1 || c.Fence != 2 {
			t.Errorf("%+v, %v, %v", c, ok, err)
		}
	})
}
