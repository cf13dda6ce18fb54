// Leases: how a holder notices that it lost one, gives up in time during an outage, and hands it on.

package job_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/testkit/jobtest"
	"cutroom/internal/work/job"
)

var quiet = slog.New(slog.DiscardHandler)

func eachDatabase(t *testing.T, test func(t *testing.T, h *jobtest.Harness)) {
	dbtest.EachParallel(t, func(t *testing.T, d *db.DB) { test(t, jobtest.New(t, d)) })
}

// add inserts a job in a state, with fence 1.
func add(h *jobtest.Harness, id, user, state string) {
	h.Exec(`INSERT INTO jobs (id, kind, user_id, state, source_duration_ms, created_at, fence) VALUES ($1, 'render', $2, $3, 61000, now_ms(), 1)`, id, user, state)
	h.Exec(`INSERT INTO renders (job_id, spec, output_kind) VALUES ($1, '', 'video')`, id)
}

// claim inserts a job of a new user that worker holds with fence 1.
func claim(h *jobtest.Harness, worker string) job.Claim {
	c := job.Claim{Lease: job.Lease{Table: "jobs", ID: "rnd-" + uuid.NewString(), Fence: 1, Asked: time.Now()}, UserID: h.User(0), State: "PROCESSING", Attempts: 1}
	add(h, c.ID, c.UserID, "PROCESSING")
	h.Exec(`UPDATE jobs SET lease_owner = $2, lease_until = now_ms() + $3 WHERE id = $1`, c.ID, worker, job.TTL.Milliseconds())
	return c
}

// renders returns the table of jobs of one kind.
func renders(d *db.DB, folder string) job.Table {
	return job.Table{Kind: "render", Prefix: "rnd-", DB: d, Folder: folder, Log: quiet,
		Renewer: job.NewRenewer(d, "me", quiet), Ended: func(context.Context, *db.Tx, job.End) error { return nil }}
}

func until(h *jobtest.Harness, l job.Claim) (left time.Duration) {
	return time.Duration(h.Number(`SELECT lease_until - now_ms() FROM jobs WHERE id = $1`, l.ID)) * time.Millisecond
}

func TestHolderNoticesItsLoss(t *testing.T) {
	t.Parallel()
	for name, steal := range map[string]string{
		"to another worker":                        `UPDATE jobs SET lease_owner = 'other' WHERE id = $1`,
		"to its own successor in the same process": `UPDATE jobs SET fence = 2 WHERE id = $1`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachDatabase(t, func(t *testing.T, h *jobtest.Harness) {
				l := claim(h, "me")
				holder := job.NewRenewer(h.DB, "me", quiet).KeepAlive(t.Context(), l.Lease)
				defer holder.Release()
				h.Exec(steal, l.ID)
				select {
				case <-holder.Work.Done():
					if !errors.Is(context.Cause(holder.Work), job.ErrLost) {
						t.Errorf("cause %v", context.Cause(holder.Work))
					}
				case <-time.After(time.Minute):
					t.Error("the holder did not notice")
				}
			})
		})
	}
}

// The holder notices a revocation at once.
func TestHolderIsNotifiedOfARevocation(t *testing.T) {
	eachDatabase(t, func(t *testing.T, h *jobtest.Harness) {
		ctx := t.Context()
		dbtest.Notifier(t, h.DB, true, true)
		k := job.NewRenewer(h.DB, "me", quiet)
		table := renders(h.DB, t.TempDir())
		table.Store = h.Store
		for what, revoke := range map[string]func(l job.Claim) error{
			"account": func(l job.Claim) error { return table.Erase(ctx, l.UserID) },
			"job": func(l job.Claim) error {
				return table.Delete(ctx, l.UserID, l.ID, func(tx *db.Tx) error {
					_, err := table.FailAll(ctx, tx, fault.Failedf(fault.Interrupted, "Deleted"), nil, job.SQL(`id = $1`, l.ID))
					return err
				}, func(context.Context) error { return nil })
			},
		} {
			// Without the notification, a holder notices at its first renewal. The test uses the fastest of several
			// runs, because the machine may be busy.
			quickest := time.Hour
			for range 20 {
				l := claim(h, "me")
				began := time.Now()
				holder := k.KeepAlive(ctx, l.Lease)
				if err := revoke(l); err != nil {
					t.Fatal(err)
				}
				<-holder.Work.Done()
				quickest = min(quickest, time.Since(began))
				if !errors.Is(context.Cause(holder.Work), job.ErrLost) {
					t.Errorf("%s: ended with %v", what, context.Cause(holder.Work))
				}
				holder.Release()
				h.Exec(`DELETE FROM jobs WHERE id = $1`, l.ID)
			}
			if quickest > job.TTL/9/2 {
				t.Errorf("%s: noticed after %v", what, quickest)
			}
		}
	})
}

// A holder that cannot reach the database stops before its lease expires.
func TestHolderGivesUpInTime(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, h *jobtest.Harness) {
		l := claim(h, "me")
		if err := h.DB.Close(); err != nil {
			t.Fatal(err)
		}
		began, control := time.Now(), make(chan time.Duration, 1)
		go func() {
			time.Sleep(job.TTL - time.Second)
			control <- time.Since(began) - (job.TTL - time.Second)
		}()
		holder := job.NewRenewer(h.DB, "me", quiet).KeepAlive(t.Context(), l.Lease)
		defer holder.Release()
		<-holder.Work.Done()
		took := time.Since(began)
		took -= <-control // the delay of timers on a busy machine
		if !errors.Is(context.Cause(holder.Work), job.ErrOutage) || took >= job.TTL || took < job.TTL/2 {
			t.Errorf("gave up after %v with %v, want %v within the lease but not at the first failure", took, context.Cause(holder.Work), job.ErrOutage)
		}
	})
}

// The lease counts from when the claim was asked for: a worker that heard of its claim late gives up as early as any
// other.
func TestALateAnswerToAClaimLeavesLessTime(t *testing.T) {
	t.Parallel()
	h := jobtest.New(t, dbtest.SQLite(t))
	l := claim(h, "me")
	l.Asked = l.Asked.Add(-job.TTL)
	if err := h.DB.Close(); err != nil {
		t.Fatal(err)
	}
	holder := job.NewRenewer(h.DB, "me", quiet).KeepAlive(t.Context(), l.Lease)
	defer holder.Release()
	select {
	case <-holder.Work.Done():
	case <-time.After(job.TTL / 2):
		t.Error("works past its lease")
	}
	if !errors.Is(context.Cause(holder.Work), job.ErrOutage) {
		t.Errorf("cause %v", context.Cause(holder.Work))
	}
}

func TestHolderEndsWithItsParent(t *testing.T) {
	eachDatabase(t, func(t *testing.T, h *jobtest.Harness) {
		why := errors.New("stopping")
		parent, cancel := context.WithCancelCause(t.Context())
		l := claim(h, "me")
		holder := job.NewRenewer(h.DB, "me", quiet).KeepAlive(parent, l.Lease)
		cancel(why)
		<-holder.Work.Done()
		if context.Cause(holder.Work) != why {
			t.Errorf("cause %v", context.Cause(holder.Work))
		}
		// The holder keeps its lease during a clean stop, which may take a while.
		runsOut := func() int64 { return h.Number(`SELECT lease_until FROM jobs WHERE id = $1`, l.ID) }
		before := runsOut()
		h.Eventually("the lease is renewed while winding down", func() bool { return runsOut() != before })
		holder.Release()
		holder.Release() // a second call has no effect
		if until(h, l) <= 0 {
			t.Error("release changed the row")
		}
	})
}

func TestAReplicaIsRegisteredWhileItRuns(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, h *jobtest.Harness) {
		ctx := t.Context()
		h.Exec(`INSERT INTO replicas (id, slots, free_bytes, seen_at) VALUES ('silent', 64, 1, now_ms() - $1), ('forgotten', 64, 1, now_ms() - 3600000)`,
			(job.ReplicaTTL + time.Second).Milliseconds())
		replica := func(id string, slots int) job.Replica {
			return job.Replica{ID: id, Log: quiet, Offers: func(context.Context) (int, int64) { return slots, -5 }}
		}
		slots := func() int64 {
			live, err := job.Live(ctx, h.DB)
			if err != nil {
				t.Fatal(err)
			}
			return live.Slots
		}
		if n := slots(); n != 0 {
			t.Errorf("%d slots of dead replicas", n)
		}
		if err := replica("other", 2).Announce(ctx, h.DB); err != nil {
			t.Fatal(err)
		}
		stop := h.Run(func(ctx context.Context) error { return replica("me", 3).Run(ctx, h.DB) })
		h.Eventually("two replicas have 5 slots", func() bool { return slots() == 5 })
		stop()
		if n, rows := slots(), h.Number(`SELECT COUNT(*) FROM replicas WHERE id <> 'silent'`); n != 2 || rows != 1 {
			t.Errorf("after the stop: %d slots, %d replicas", n, rows)
		}
	})
}

// A live holder keeps its lease. Another replica gets the lease after it expires, or soon after the holder releases it.
func TestOneReplicaAtATime(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, h *jobtest.Harness) {
		began := make(chan string)
		start := func(owner string) (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				job.NewRenewer(h.DB, owner, quiet).RunExclusive(ctx, "all", func(work context.Context) {
					began <- owner
					<-work.Done()
				})
			}()
			return func() { cancel(); <-ended }
		}
		next := func(want string, within time.Duration) {
			t.Helper()
			select {
			case got := <-began:
				if got != want {
					t.Fatalf("%s works, want %s", got, want)
				}
			case <-time.After(within):
				t.Fatalf("%s does not work after %v", want, within)
			}
		}
		h.Exec(`INSERT INTO leases VALUES ('all', 'dead', now_ms() + 1000, 7)`)
		stopA := start("a")
		next("a", time.Minute)
		if left := h.Number(`SELECT lease_until - now_ms() FROM leases WHERE lease_owner = 'a' AND fence = 8`); left < 0 {
			t.Fatalf("a works without a lease: %d ms", left)
		}
		stopB := start("b")
		select {
		case who := <-began:
			t.Fatalf("%s works at the same time as a", who)
		case <-time.After(job.TTL * 3 / 2): // a keeps its lease
		}
		stopA()
		next("b", job.TTL*2/3) // before a's lease would have expired
		stopB()
	})
}
