// The queue: order, limit, fences, positions and estimates, frozen replicas, and the plans of its queries.

package separation

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/film/media/container"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/testkit/jobtest"
	"cutroom/internal/upstream/separator"
	"cutroom/internal/work/job"
)

// However many workers claim at once, the oldest jobs go first, and no more than the limit.
func TestClaimsKeepLimitAndOrder(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		const jobs, limit, replicas, each = 30, 3, 4, 2
		owner := r.User(jobs)
		var services []*Service
		for range replicas {
			services = append(services, r.service(func(o *Options) { o.InFlight = limit }))
		}
		var ids []string
		for range jobs {
			ids = append(ids, r.enqueue(services[0], owner))
		}
		for len(ids) > 0 && !t.Failed() {
			var mu sync.Mutex
			var claimed []claimedJob
			var wg sync.WaitGroup
			for i := range replicas * each {
				wg.Go(func() {
					j, ok, err := services[i%replicas].claim(t.Context())
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						t.Error(err)
					} else if ok {
						claimed = append(claimed, j)
					}
				})
			}
			wg.Wait()
			slices.SortFunc(claimed, func(a, b claimedJob) int { return strings.Compare(a.ID, b.ID) })
			var got []string
			for _, j := range claimed {
				got = append(got, j.ID)
				if r := services[0].jobs.Apply(t.Context(), j.Claim, outcome(j, fail, errProviderFailed), nil); r != job.Failed {
					t.Errorf("fail: %v", r)
				}
			}
			if want := ids[:min(limit, len(ids))]; !slices.Equal(got, want) {
				t.Errorf("claimed %v, want %v", got, want)
			}
			ids = ids[min(limit, len(ids)):]
		}
		if n := r.Number(`SELECT COUNT(*) FROM jobs WHERE fence <> 2`); n > 0 {
			t.Errorf("%d jobs were not claimed exactly once", n)
		}
		r.booked(owner, jobs)
	})
}

// Submissions of several replicas commit in the order of created_at. Otherwise a job could be claimed before an older
// one commits.
func TestSubmissionsAreSeenInOrder(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		const submitters, each = 6, 12
		submitted := make(chan struct{}, submitters*each)
		var wg sync.WaitGroup
		for range submitters {
			s, owner := r.service(), r.User(each)
			wg.Go(func() {
				for range each {
					if err := r.tryEnqueue(s, owner, "sep-"+uuid.Must(uuid.NewV7()).String()); err != nil {
						t.Error(err)
					}
					submitted <- struct{}{}
				}
			})
		}
		s := r.service(func(o *Options) { o.InFlight = 1 })
		last := int64(0)
		for n := 0; n < submitters*each && !t.Failed(); {
			j, ok, err := s.claim(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				<-submitted
				continue
			}
			n++
			at := r.Number(`SELECT created_at FROM jobs WHERE id = $1`, j.ID)
			if at < last {
				t.Errorf("claimed a job of %d after one of %d", at, last)
			}
			last = at
			s.apply(t.Context(), j, fail, errProviderFailed)
		}
		wg.Wait()
	})
}

// What a former holder still does with a job has no effect. The job package tests the moves that both kinds share.
func TestALostLeaseIsFenced(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		ctx := t.Context()
		a, b := r.service(), r.service()
		owner := r.User(2)
		id := r.enqueue(a, owner)
		old := r.claimed(a)
		r.age(id, job.TTL+time.Second)
		if err := b.recoverDead(ctx); err != nil {
			t.Fatal(err)
		}
		now := r.claimed(b)
		if now.ID != id || now.Attempts != 2 {
			t.Fatalf("claimed %+v", now)
		}
		unchanged := func(old claimedJob) {
			t.Helper()
			for what, try := range map[string]func(j *claimedJob) error{
				"intent": func(j *claimedJob) error { return a.intend(ctx, j) },
				"start":  func(j *claimedJob) error { return a.started(ctx, j, 99) },
				"failure": func(j *claimedJob) error {
					if a.jobs.Apply(ctx, j.Claim, outcome(*j, fail, errProviderFailed), nil) == job.Left {
						return job.ErrMoved
					}
					return nil
				},
			} {
				before, j := r.row(id), old
				if err := try(&j); !errors.Is(err, job.ErrMoved) {
					t.Errorf("%s: %v", what, err)
				}
				if after := r.row(id); after != before {
					t.Errorf("%s by the old holder changed %+v to %+v", what, before, after)
				}
			}
		}
		unchanged(old)
		r.processing(b, &now)
		unchanged(old)
		r.age(id, job.TTL+time.Second)
		adopted, ok, err := a.claim(ctx)
		if err != nil || !ok || adopted.ProjectID.Int64 != 4711 || adopted.Attempts != 2 {
			t.Fatalf("adopt: %+v, %v, %v", adopted, ok, err)
		}
		unchanged(now)
		r.makeReady(a, &adopted, stemVoice)
		r.booked(owner, 1)
	})
}

func TestPositionAndEstimate(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		a, b := r.User(9), r.User(9)
		s := r.service(func(o *Options) { o.InFlight = 2 })
		owners := []string{a, b, a}
		var ids []string
		for _, owner := range owners {
			ids = append(ids, r.enqueue(s, owner))
		}
		check := func(perJob float64) {
			t.Helper()
			for i, id := range ids {
				st, err := s.Status(t.Context(), owners[i], id)
				if err != nil {
					t.Fatal(err)
				}
				want := time.Duration(float64(i+1)*perJob/2) * time.Second
				if st.QueuePosition != int64(i+1) || st.EstimatedWait != want {
					t.Errorf("job %d: position %d, wait %v, want %d, %v", i, st.QueuePosition, st.EstimatedWait, i+1, want)
				}
			}
		}
		// 60 finished jobs: the ten oldest took an hour, the last fifty alternately 20 and 40 s.
		for i := range 60 {
			took := int64(20_000 + 20_000*(i%2))
			if i < 10 {
				took = 3_600_000
			}
			ended := int64(1e12) + int64(i)*1000
			id := fmt.Sprintf("sep-old-%d", i)
			jobtest.Insert(t, r.DB, id, a, []string{StateReady, StateDisposed}[i%2], ended, 0)
			r.Exec(`UPDATE separations SET submitting_at = $2 WHERE job_id = $1`, id, ended-took)
			// A job that failed does not count.
			failed := fmt.Sprintf("sep-failed-%d", i)
			jobtest.Insert(t, r.DB, failed, a, StateFailed, ended+500, 0)
			r.Exec(`UPDATE separations SET submitting_at = $2 WHERE job_id = $1`, failed, ended)
		}
		check(30)
		j := r.claimed(s)
		if j.ID != ids[0] {
			t.Fatalf("claimed %s, want %s", j.ID, ids[0])
		}
		st, err := s.Status(t.Context(), a, ids[0])
		if err != nil || st.State != StateSubmitting || st.QueuePosition != 0 || st.EstimatedWait != 0 {
			t.Errorf("claimed job: %+v, %v", st, err)
		}
		ids, owners = ids[1:], owners[1:]
		check(30)
	})
}

func TestDeletionAndTheQueue(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		ctx := t.Context()
		s := r.service(func(o *Options) { o.InFlight = 5 })
		owner, other := r.User(9), r.User(9)
		submitting, running := r.reach(s, owner, StateSubmitting), r.reach(s, owner, StateProcessing)
		r.enqueue(s, owner)
		theirs := r.enqueue(s, other)
		r.Exec(`UPDATE users SET erasing_at = now_ms() WHERE id = $1`, owner)
		var refused *fault.Error
		if err := r.tryEnqueue(s, owner, "sep-late"); !errors.As(err, &refused) || refused.Code != "account_deleted" {
			t.Errorf("a submission during the deletion: %v", err)
		}
		if err := s.intend(ctx, &submitting); !errors.Is(err, job.ErrMoved) {
			t.Errorf("an intent during the deletion: %v", err)
		}
		if err := s.Erase(ctx, owner); err != nil {
			t.Fatal(err)
		}
		if j := r.claimed(s); j.ID != theirs {
			t.Errorf("claimed %s, want the other user's %s", j.ID, theirs)
		}
		if _, ok, err := s.claim(ctx); ok || err != nil {
			t.Errorf("adopted a job of a user who is being erased (%v)", err)
		}
		if err := s.ready(ctx, &running, []stem{{id: stemVoice, Stem: separator.Stem{Kind: container.FLAC}}}); !errors.Is(err, job.ErrMoved) {
			t.Errorf("a result during the deletion: %v", err)
		}
	})
}

// A replica that freezes in the middle of a claim, like a paused machine, delays the queue only briefly, not until its
// connection times out.
func TestFrozenReplicaDoesNotHoldTheQueue(t *testing.T) {
	t.Parallel()
	d := dbtest.Postgres(t)
	r := newHarness(t, d)
	s := r.service()
	r.enqueue(s, r.User(1))
	frozen, thaw := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- d.InTx(t.Context(), func(tx *db.Tx) error {
			if err := tx.Lock(t.Context(), TopicQueue); err != nil {
				return err
			}
			close(frozen)
			<-thaw
			_, err := tx.Exec(t.Context(), `UPDATE jobs SET state = 'FAILED'`)
			return err
		})
	}()
	<-frozen
	r.Eventually("the queue moves, although a replica is frozen", func() bool {
		_, ok, err := s.claim(t.Context())
		if err != nil && !errors.Is(err, db.ErrUnavailable) {
			t.Fatal(err)
		}
		return ok
	})
	close(thaw)
	if err := <-ended; err == nil {
		t.Error("the frozen transaction committed")
	}
}

// SQLite uses a partial index only if it recognises the index's condition. These queries run every two to five seconds
// on every replica.
func TestHotQueriesUseTheirIndexes(t *testing.T) {
	d := dbtest.Open(t, db.Options{URL: "sqlite::memory:", MaxPool: 1})
	sweep := func(which, and string) string { // see job.Table.Sweep
		return `SELECT j.id FROM jobs j JOIN separations d ON d.job_id = j.id AND j.kind = 'separation'
			WHERE (` + which + `) AND (` + and + `) ORDER BY j.created_at, j.id LIMIT 100`
	}
	for query, index := range map[string]string{
		`SELECT COUNT(*) FROM jobs j WHERE ` + inFlight:                                              "jobs_at_work",
		sweep(inFlight+` AND j.state = 'SUBMITTING'`, `COALESCE(d.submitting_at, 0) < now_ms() - 1`): "jobs_at_work",
		sweep(inFlight+` AND j.state = 'PROCESSING'`, `COALESCE(d.processing_at, 0) < now_ms() - 1`): "jobs_at_work",
		`SELECT j.id FROM jobs j WHERE ` + inFlight + ` AND j.state = 'PROCESSING' AND (j.lease_until IS NULL OR j.lease_until < now_ms())
			AND ` + ownerNotErasing + oldest + ` LIMIT 1`: "jobs_at_work",
		`SELECT j.id FROM jobs j WHERE ` + queued + ` AND ` + ownerNotErasing + oldest + ` LIMIT 1`:                                                      "jobs_queue",
		sweep(queued, `d.busy_since < now_ms() - 1`):                                                                                                     "jobs_queue",
		`SELECT j.id FROM ` + rows + ` WHERE j.state = 'READY' AND j.finished_at < now_ms() - 1 AND d.collected_at < 9 ORDER BY j.finished_at LIMIT 100`: "jobs_ready",
		`SELECT COALESCE(MAX(submitting_at), 0) FROM separations WHERE submitting_at IS NOT NULL`:                                                        "separations_dequeued",
		strings.NewReplacer("$1", "'1'", "$2", "'x'").Replace(placeQuery):                                                                                "jobs_finished",
	} {
		plan := dbtest.Plan(t, d, "", query)
		if !slices.ContainsFunc(plan, func(line string) bool { return strings.Contains(line, index) }) {
			t.Errorf("%s\ndoes not use %s: %v", query, index, plan)
		}
	}
}
