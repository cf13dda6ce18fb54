// A provider that is busy: how long jobs wait for it, in which order, and when they fail.

package separation

import (
	"errors"
	"testing"
	"time"

	"cutroom/internal/sandbox/fake"
	"cutroom/internal/upstream/separator"
	"cutroom/internal/work/job"
)

// If the provider is busy at any call before payment, the service retries after the provider's Retry-After. That costs
// neither an attempt nor a second charge.
func TestABusyProviderIsWaitedFor(t *testing.T) {
	t.Parallel()
	for status, step := range map[int]string{503: "register", 429: "audio-separation"} {
		r := onSQLite(t).withProvider()
		s := r.service(func(o *Options) { o.BusyWait, o.InFlight = 30*time.Minute, 1 })
		owner := r.User(1)
		r.fault(fake.Rule{Step: step, Kind: fake.KindStatus, Status: status, Headers: map[string]string{"Retry-After": "3600"}, Times: 1})
		id := r.enqueueAudio(s, owner)
		stop := r.run(s)
		r.Eventually("a pause", func() bool { return r.Number(`SELECT until_ms - now_ms() FROM separation_pause`) > 3_500_000 })
		r.Eventually("queued", func() bool { return r.row(id).State == StateQueued })
		calls := r.provider.Faults.Count(step)
		if x := r.row(id); x.Attempts != 0 || x.Intent || x.Leased {
			t.Errorf("%s: %+v", step, x)
		}
		if _, ok, err := s.claim(t.Context()); ok || err != nil {
			t.Errorf("%s: claimed during the pause: %v, %v", step, ok, err)
		}
		if r.provider.Faults.Count(step) != calls {
			t.Errorf("%s: the provider was called during the pause", step)
		}
		if err := s.SweepJobs(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.Exec(`UPDATE separation_pause SET until_ms = 0`)
		if x := r.waitState(id, StateReady); x.Attempts != 1 {
			t.Errorf("%s: %+v", step, x)
		}
		stop()
		r.booked(owner, 0)
	}
}

func TestABusyProviderIsNotWaitedForForever(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		owner := r.User(4)
		patient := func(o *Options) { o.BusyWait = 10 * time.Minute }
		busy := &separator.Error{Op: "register", Status: 429, Busy: true, RetryAfter: time.Hour}
		refused := func(o func(*Options), left time.Duration, deleted bool) (s *Service, id string) {
			s = r.service(o)
			j := r.reach(s, owner, asking)
			r.Exec(`UPDATE separations SET busy_since = now_ms() - 600000 + $2 WHERE job_id = $1`, j.ID, left.Milliseconds())
			if deleted {
				r.Exec(`UPDATE jobs SET deleted_at = now_ms() WHERE id = $1`, j.ID)
			}
			r.end(s, j.ID, busy)
			r.Exec(`UPDATE separation_pause SET until_ms = 0`)
			return s, j.ID
		}
		const sentence = "Provider rate limit exceeded, please try again later"
		failed := row{State: StateFailed, Error: sentence, Code: "provider_unavailable"}

		s, queued := refused(patient, 5*time.Second, false)
		if x := r.row(queued); x.State != StateQueued || x.Intent {
			t.Errorf("within its time: %+v", x)
		}
		r.Exec(`UPDATE separations SET busy_since = busy_since - 6000 WHERE job_id = $1`, queued)
		if err := s.SweepJobs(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, over := refused(patient, 0, false)
		_, atOnce := refused(func(*Options) {}, 5*time.Second, false)
		_, deleted := refused(patient, 5*time.Second, true)
		gone := row{State: StateFailed, Error: job.ErrDeleted.Sentence, Code: "interrupted"}
		for id, want := range map[string]row{queued: failed, over: failed, atOnce: failed, deleted: gone} {
			if x := r.row(id); x.State != want.State || x.Error != want.Error || x.Code != want.Code {
				t.Errorf("%+v, want %+v", x, want)
			}
		}
		r.booked(owner, 4) // also for the deleted job, which the provider refused
	})
}

// While the provider is busy, the service does not submit the jobs behind the refused ones. They fail after the same
// time as those, not after each has been refused for that long.
func TestJobsBehindRefusedOnesDoNotWaitForever(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		for name, test := range map[string]struct {
			also  string // a change to the job $1 that the provider accepted last
			age   time.Duration
			state string
		}{
			"busy since then":       {age: 41 * time.Minute, state: StateFailed},
			"not so long":           {age: 39 * time.Minute, state: StateQueued},
			"another one is there":  {age: 41 * time.Minute, state: StateQueued, also: `UPDATE jobs SET state = 'PROCESSING' WHERE id = $1`},
			"another one was there": {age: 41 * time.Minute, state: StateQueued, also: `UPDATE separations SET submitting_at = now_ms() - 2000000 WHERE job_id = $1`},
		} {
			r := newHarness(t, r.DB)
			r.Exec(`DELETE FROM users`)
			r.Exec(`UPDATE separation_pause SET until_ms = 0`)
			owner := r.User(3)
			s := r.service(func(o *Options) { o.BusyWait = 40 * time.Minute })
			last := r.reach(s, owner, StateReady)
			r.age(last.ID, time.Hour)
			refused := r.reach(s, owner, asking)
			r.end(s, refused.ID, &separator.Error{Op: "register", Status: 429, Busy: true})
			behind := r.enqueue(s, owner)
			r.age(behind, test.age)
			if test.also != "" {
				r.Exec(test.also, last.ID)
			}
			if err := s.failStale(t.Context()); err != nil {
				t.Fatal(err)
			}
			if x, first := r.row(behind), r.row(refused.ID); x.State != test.state || first.State != StateQueued {
				t.Errorf("%s: %+v, want %s, behind %+v", name, x, test.state, first)
			}
		}
	})
}

func TestPausesGrowWhileTheProviderIsBusy(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		s := r.service()
		refuse := func(retryAfter, want time.Duration) {
			t.Helper()
			got, err := s.pauseSubmissions(t.Context(), retryAfter)
			if err != nil || got > want || got < want-3*time.Second {
				t.Errorf("paused for %v, want %v: %v", got, want, err)
			}
		}
		over := func() { r.Exec(`UPDATE separation_pause SET until_ms = 0`) }
		for _, seconds := range []time.Duration{5, 10, 20, 40, 80, 120, 120} {
			refuse(0, seconds*time.Second)
			refuse(0, seconds*time.Second) // another refusal during the pause
			over()
		}
		refuse(7*time.Minute, 7*time.Minute)
		refuse(time.Second, 7*time.Minute) // the longer pause counts
		over()
		r.processing(s, new(r.reach(s, r.User(1), StateSubmitting)))
		refuse(0, 5*time.Second) // the backoff starts again
		if err := s.maySubmit(t.Context()); !errors.Is(err, errPaused) {
			t.Errorf("may submit: %v", err)
		}
	})
}
