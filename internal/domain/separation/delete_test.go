// Deletion of separations in any order with workers and sweeps: refunds, and the stems that a render still reads.

package separation

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"cutroom/internal/testkit/jobtest"
	"cutroom/internal/upstream/separator"
	"cutroom/internal/work/job"
)

// A render can read its stems until it ends, even if their job is deleted.
func TestDeleteLeavesWhatARenderReads(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		s, owner := r.service(), r.User(5)
		id := r.reach(s, owner, StateReady).ID
		held := stemKey(id, stemVoice, "flac")
		r.readByRender(owner, held)
		if err := s.Delete(t.Context(), owner, id); err != nil {
			t.Fatal(err)
		}
		if _, err := s.ResolveStem(t.Context(), owner, id, stemVoice); !errors.Is(err, errInvalidStemURL) {
			t.Errorf("a stem of a deleted job: %v", err)
		}
		sweep := func(want ...string) {
			t.Helper()
			if err := s.Sweeper.Sweep(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			if got := r.Keys("separation/"); !slices.Equal(got, want) {
				t.Errorf("stems %v, want %v", got, want)
			}
		}
		sweep(held)
		r.Exec(`DELETE FROM held_objects`)
		sweep()
	})
}

// A deleted job is refunded exactly if the provider was not asked, or refused.
func TestADeletedJobIsRefundedUnlessItWasSubmitted(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		s := r.service(func(o *Options) { o.InFlight = 9; o.BusyWait = time.Hour })
		for name, tt := range map[string]struct {
			err    error
			intent bool // only recorded: the service stopped before the call
			refund int64
		}{
			"stopped before the call": {err: context.Canceled, intent: true, refund: 1},
			"busy":                    {err: &separator.Error{Status: 429, Busy: true}, refund: 1},
			"refused":                 {err: &separator.Error{Status: 402}, refund: 1},
			"no answer":               {err: &separator.Error{Status: 502, Transient: true}},
		} {
			owner := r.User(1)
			j := r.reach(s, owner, asking)
			if err := s.Delete(t.Context(), owner, j.ID); err != nil {
				t.Fatal(err)
			}
			j.AskedAt.Valid = !tt.intent
			s.apply(t.Context(), j, decide(j, tt.err, circumstances{stopped: tt.intent, busyWait: s.BusyWait}), tt.err)
			if x := r.row(j.ID); x.State != StateFailed {
				t.Errorf("%s: %+v", name, x)
			}
			r.booked(owner, tt.refund)
			r.Exec(`UPDATE separation_pause SET until_ms = 0`)
		}
	})
}

// lifetimes runs jobs step by step, with other operations between the steps.
type lifetimes struct {
	*harness
	s *Service
}

// work runs a worker on the next job, and stops it after the given number of moves.
func (l *lifetimes) work(ctx context.Context, moves int, refused bool) {
	j, ok, err := l.s.claim(ctx)
	if err != nil || !ok {
		return
	}
	steps := []func() error{
		func() error {
			if j.State == StateProcessing {
				return nil
			}
			return l.s.intend(ctx, &j)
		},
		func() error {
			if refused {
				return errProviderFailed
			}
			if j.State == StateProcessing {
				return nil
			}
			return l.s.started(ctx, &j, 7)
		},
		func() error { return l.s.done(ctx, &j) },
		func() error { return l.s.ready(ctx, &j, []stem{{id: stemVoice, durationMs: 500}}) },
	}
	for _, step := range steps[:min(moves, len(steps))] {
		if err := step(); err != nil {
			if !errors.Is(err, job.ErrMoved) {
				l.s.apply(ctx, j, decide(j, err, circumstances{}), err)
			}
			return
		}
	}
	if moves == 0 { // the service stops here
		if j.State == StateSubmitting && refused {
			stopped, stop := context.WithCancel(ctx)
			stop()
			_ = l.s.intend(stopped, &j)
		}
		if !j.AskedAt.Valid {
			l.s.apply(ctx, j, handBack, context.Canceled) // if this fails, the sweeps repair it
		}
	}
}

// In any order of operations by workers, sweeps and deletions, sequential or concurrent, the balance matches the
// ledger. A deleted job is refunded once, and only if it was not submitted to the provider. Nothing of it comes back.
func TestDeletionsAmongAllMoves(t *testing.T) {
	if err := flag.Set("rapid.checks", "15"); err != nil {
		t.Fatal(err)
	}
	eachDatabase(t, func(t *testing.T, r *harness) {
		rapid.Check(t, func(rt *rapid.T) {
			r := newHarness(t, r.DB)
			defer r.Exec(`DELETE FROM users`)
			l := &lifetimes{harness: r, s: r.service(func(o *Options) { o.InFlight = 3; o.StuckAfter = 0; o.PollTimeout = time.Hour })}
			const credits = 20
			owner := r.User(credits)
			var jobs []string
			for range 5 {
				jobs = append(jobs, r.enqueue(l.s, owner))
			}
			deleted := l.interleave(t, rt, owner, jobs)
			l.judge(owner, credits, jobs, deleted)
		})
	})
}

// interleave performs operations of workers, sweeps and deletions on jobs.
func (l *lifetimes) interleave(t *testing.T, rt *rapid.T, owner string, jobs []string) map[string]int {
	ctx := t.Context()
	operations := []string{"work", "work", "work", "delete", "delete", "recover", "die", "time out"}
	return jobtest.Interleave(t, rt, jobs, operations, func(operation, id string, n int) (deleted bool, err error) {
		switch operation {
		case "work":
			l.work(ctx, n%6, n/6 == 4)
		case "delete":
			if err = l.s.Delete(ctx, owner, id); errors.Is(err, errUnknownJob) {
				return false, nil
			}
			return err == nil, err
		case "recover":
			err = l.s.recoverStuck(ctx)
		case "die":
			_, err = l.DB.Exec(ctx, `UPDATE jobs SET lease_until = 0 WHERE id = $1 AND lease_until IS NOT NULL`, id)
		case "time out":
			_, err = l.DB.Exec(ctx, `UPDATE separations SET processing_at = 0,
				provider_done_at = CASE WHEN provider_done_at IS NULL THEN NULL ELSE 0 END WHERE job_id = $1 AND processing_at IS NOT NULL`, id)
			err = errors.Join(err, l.s.failTimedOut(ctx))
		}
		return false, err
	})
}

// judge checks the invariants of an account and its jobs.
func (l *lifetimes) judge(owner string, credits int64, jobs []string, deleted map[string]int) {
	l.T.Helper()
	want := credits
	for _, id := range jobs {
		x := l.row(id)
		refunds := l.Number(`SELECT COUNT(*) FROM credit_ledger WHERE ref_id = $1`, "refund-"+id)
		what := fmt.Sprintf("%s: %+v, deleted %d times, %d refunds", id, x, deleted[id], refunds)
		if deleted[id] > 1 {
			l.T.Errorf("deleted twice: %s", what)
		}
		if refunds == 0 {
			want--
		}
		hidden := l.Number(`SELECT COUNT(*) FROM jobs WHERE id = $1 AND deleted_at IS NOT NULL`, id)
		if hidden != int64(deleted[id]) {
			l.T.Errorf("hidden %d: %s", hidden, what)
		}
		ended := l.Number(`SELECT COUNT(*) FROM jobs WHERE id = $1 AND error = $2`, id, job.ErrDeleted.Sentence) == 1
		switch {
		case deleted[id] == 0 && (refunds == 1) != (x.State == StateFailed):
			l.T.Errorf("wrong refund of a job that was not deleted: %s", what)
		case deleted[id] == 0:
		case x.State == StateQueued, x.State == StateReady, x.State != StateFailed && !x.Intent:
			l.T.Errorf("has not ended: %s", what)
		case x.State != StateFailed && refunds > 0, ended && (refunds == 1) == x.Intent:
			l.T.Errorf("refunded although submitted to the provider, or the reverse: %s", what)
		case l.Number(`SELECT COUNT(*) FROM separation_stems WHERE job_id = $1`, id) > 0:
			l.T.Errorf("keeps its stems: %s", what)
		}
	}
	l.booked(owner, want)
}
