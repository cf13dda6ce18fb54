// The sweeps: which jobs they end with which reason, which files they remove, and that they look again before they act.

package separation

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/work/job"
)

func TestSweeps(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		// ahead claims an older job, so the queue moves.
		ahead := func(r *harness, s *Service, owner, _ string) {
			first := r.enqueue(s, owner)
			r.age(first, time.Hour)
			if j := r.claimed(s); j.ID != first {
				r.T.Fatalf("claimed %s", j.ID)
			}
		}
		// slow makes the provider work on older jobs for 40 minutes, whose leases end in so many milliseconds.
		slow := func(lease string) func(r *harness, s *Service, owner, id string) {
			return func(r *harness, s *Service, owner, _ string) {
				for range s.InFlight {
					first := r.enqueue(s, owner)
					r.age(first, time.Hour)
					j := r.claimed(s)
					r.processing(s, &j)
					r.Exec(`UPDATE separations SET submitting_at = now_ms() - 2400000 WHERE job_id = $1`, first)
				}
				r.Exec(`UPDATE jobs SET lease_until = now_ms() + (` + lease + `) WHERE state = 'PROCESSING'`)
			}
		}
		tests := []struct {
			name    string
			state   string
			minutes time.Duration // the job's age and its time in its state
			leased  bool          // its worker lives
			set     string        // a change to its details, or ""
			also    func(r *harness, s *Service, owner, id string)
			want    row // only State, Error, Code and Attempts count
			refund  bool
		}{
			{name: "submitting, young", state: StateSubmitting, minutes: 9, leased: true, want: row{State: StateSubmitting, Attempts: 1}},
			{name: "stuck for the first time", state: StateSubmitting, minutes: 11, want: row{State: StateQueued, Attempts: 1}},
			{name: "stuck, though its worker lives", state: StateSubmitting, minutes: 11, leased: true, want: row{State: StateQueued, Attempts: 1}},
			{name: "stuck half an hour and alone in the queue", state: StateSubmitting, minutes: 31, want: row{State: StateQueued, Attempts: 1}},
			{name: "stuck for the third time", state: StateSubmitting, minutes: 11, also: func(r *harness, s *Service, _, id string) {
				for range 2 {
					if err := s.recoverStuck(r.T.Context()); err != nil {
						r.T.Fatal(err)
					}
					r.claimed(s)
					r.age(id, 11*time.Minute)
				}
			}, want: row{State: StateFailed, Error: sentenceNoAnswer, Code: "interrupted", Attempts: 3}, refund: true},
			{name: "stuck after the intent", state: asking, minutes: 11,
				want: row{State: StateFailed, Error: sentenceNoAnswer, Code: "interrupted", Attempts: 1}, refund: true},
			{name: "queued and young", state: StateQueued, minutes: 29, want: row{State: StateQueued}},
			{name: "stale: the queue stands still", state: StateQueued, minutes: 31,
				want: row{State: StateFailed, Error: errStale.Sentence, Code: "stale"}, refund: true},
			{name: "behind jobs that take long, whose workers live", state: StateQueued, minutes: 50, also: slow("9000"), want: row{State: StateQueued}},
			{name: "behind jobs whose workers died", state: StateQueued, minutes: 50, also: slow("-1000"),
				want: row{State: StateFailed, Error: errStale.Sentence, Code: "stale"}, refund: true},
			{name: "behind a slow job that has just ended", state: StateQueued, minutes: 50, also: func(r *harness, s *Service, owner, id string) {
				slow("9000")(r, s, owner, id)
				r.Exec(`UPDATE jobs SET state = 'READY', finished_at = now_ms(), lease_until = NULL WHERE state = 'PROCESSING'`)
			}, want: row{State: StateQueued}},
			{name: "old, but the queue moves", state: StateQueued, minutes: 50, also: ahead, want: row{State: StateQueued}},
			{name: "processing within its time", state: StateProcessing, minutes: 29, want: row{State: StateProcessing, Attempts: 1}},
			{name: "processing for too long", state: StateProcessing, minutes: 31, also: func(r *harness, _ *Service, _, id string) {
				r.Put(stemKey(id, stemVoice, "flac")) // the worker had begun to store stems
			}, want: row{State: StateFailed, Error: sentenceNoAnswer, Code: "timed_out", Attempts: 1}, refund: true},
			{name: "done in time, and its stems on their way", state: StateProcessing, minutes: 31, leased: true,
				set: `provider_done_at = now_ms() - 540000`, want: row{State: StateProcessing, Attempts: 1}},
			{name: "done in time, but its stems do not come", state: StateProcessing, minutes: 31, leased: true,
				set:  `provider_done_at = now_ms() - 660000`,
				want: row{State: StateFailed, Error: sentenceNoAnswer, Code: "timed_out", Attempts: 1}, refund: true},
			{name: "ready, and collected lately", state: StateReady, minutes: 120, set: `collected_at = now_ms() - 3000000`,
				want: row{State: StateReady, Attempts: 1}},
			{name: "ready, but read by a render", state: StateReady, minutes: 120, also: func(r *harness, _ *Service, owner, id string) {
				r.readByRender(owner, stemKey(id, stemVoice, "flac"))
			}, want: row{State: StateReady, Attempts: 1}},
			{name: "abandoned", state: StateReady, minutes: 61, want: row{State: StateDisposed, Attempts: 1}},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				r := newHarness(t, r.DB)
				r.Exec(`DELETE FROM users`)
				s := r.service()
				owner := r.User(9)
				id := r.reach(s, owner, tt.state).ID
				r.age(id, tt.minutes*time.Minute)
				if tt.leased {
					r.Exec(`UPDATE jobs SET lease_until = now_ms() + 9000 WHERE id = $1`, id)
				}
				if tt.set != "" {
					r.Exec(`UPDATE separations SET `+tt.set+` WHERE job_id = $1`, id)
				}
				if tt.also != nil {
					tt.also(r, s, owner, id)
				}
				charged := r.Number(`SELECT balance FROM credit_balances WHERE user_id = $1`, owner)
				// Two replicas sweep concurrently, and then one sweeps again.
				ended := make(chan error, 2)
				for range 2 {
					other := r.service()
					go func() { ended <- other.SweepJobs(t.Context()) }()
				}
				for range 2 {
					if err := <-ended; err != nil {
						t.Error(err)
					}
				}
				if err := s.SweepJobs(t.Context()); err != nil {
					t.Error(err)
				}
				got := r.row(id)
				if got.State != tt.want.State || got.Error != tt.want.Error || got.Code != tt.want.Code || got.Attempts != tt.want.Attempts {
					t.Errorf("%+v, want %+v", got, tt.want)
				}
				if tt.refund {
					charged++
				}
				r.booked(owner, charged)
				stems := len(r.Keys("separation/" + id + "/"))
				rows := int(r.Number(`SELECT COUNT(*) FROM separation_stems WHERE job_id = $1`, id))
				if stems != rows {
					t.Errorf("%d stems in the store, %d in the database", stems, rows)
				}
			})
		}
	})
}

// A sweep that has selected a job looks at it again once it has the job's row: in between a worker may have renewed its
// lease, or gone on.
func TestSweepsLookAgain(t *testing.T) {
	t.Parallel()
	d := dbtest.Postgres(t)
	for _, tt := range []struct {
		name, state string
		minutes     time.Duration
		set         string // what the job is like when it is selected
		sweep       func(*Service, context.Context) error
		change      string // by its worker, of the job $1
	}{
		{"a worker that asked the provider is back", asking, 1, "", (*Service).recoverDead, `UPDATE jobs SET lease_until = now_ms() + 9000 WHERE id = $1`},
		{"a worker is back in its last attempt", StateSubmitting, 1, `UPDATE jobs SET attempts = 3 WHERE id = $1`, (*Service).recoverDead,
			`UPDATE jobs SET lease_until = now_ms() + 9000 WHERE id = $1`},
		{"the provider is done", StateProcessing, 31, "", (*Service).failTimedOut, `UPDATE separations SET provider_done_at = now_ms() WHERE job_id = $1`},
		{"another job has left the queue", StateQueued, 31, "", (*Service).failStale,
			`UPDATE separations SET submitting_at = now_ms() WHERE job_id <> $1`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, ctx := newHarness(t, d), t.Context()
			r.Exec(`DELETE FROM users`)
			s := r.service()
			owner := r.User(2)
			r.age(r.reach(s, owner, StateReady).ID, 40*time.Minute) // an older one
			r.Exec(`UPDATE jobs SET finished_at = 1`)
			id := r.reach(s, owner, tt.state).ID
			r.age(id, tt.minutes*time.Minute)
			if tt.set != "" {
				r.Exec(tt.set, id)
			}
			swept := make(chan error, 1)
			if err := d.InTx(ctx, func(tx *db.Tx) error {
				if _, err := tx.Exec(ctx, `UPDATE jobs SET progress = progress WHERE id = $1`, id); err != nil {
					return err
				}
				go func() { swept <- tt.sweep(s, ctx) }()
				r.Eventually("the sweep waits for the row", func() bool {
					return r.Number(`SELECT COUNT(*) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
						WHERE NOT l.granted AND a.datname = current_database()`) > 0
				})
				_, err := tx.Exec(ctx, tt.change, id)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if err := <-swept; err != nil {
				t.Fatal(err)
			}
			if x := r.row(id); x.State == StateFailed {
				t.Errorf("%+v", x)
			}
			r.booked(owner, 0)
		})
	}
}

func TestSweepFiles(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		s := r.service(func(o *Options) { o.InFlight = 9 })
		owner := r.User(9)
		done, running, failed := r.reach(s, owner, StateProcessing), r.reach(s, owner, StateProcessing), r.reach(s, owner, StateProcessing)
		// A crashed attempt had stored more stems than the one that finished.
		r.Put(stemKey(done.ID, "speaker_7", "mp3"))
		r.makeReady(s, &done, stemVoice, stemBackground)
		r.Put(stemKey(done.ID, stemVoice, "peaks"))
		r.Exec(`UPDATE separation_stems SET peaks_key = $1 WHERE job_id = $2 AND stem_id = $3`, stemKey(done.ID, stemVoice, "peaks"), done.ID, stemVoice)
		r.Put(stemKey(done.ID, stemBackground, "peaks")) // no row has this key
		r.Put(stemKey(running.ID, stemVoice, "flac"))
		s.apply(t.Context(), failed, fail, errProviderFailed)
		r.Put(stemKey(failed.ID, stemVoice, "flac"))
		// An object without a row is an orphan, unless it is so new that its row may not exist yet.
		r.Put(stemKey("sep-unknown", stemVoice, "flac"))
		// A crash between the cut and the charge leaves the source and the cut's folder.
		crashed, fresh, cut := sourceKey("sep-crashed", "wav"), sourceKey("sep-fresh", "wav"), filepath.Join(s.WorkDir, "sep-crashed-cut-1")
		r.Put(crashed)
		r.Put(fresh)
		if err := os.Mkdir(cut, 0o700); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(-2 * job.OrphanAge)
		for _, path := range []string{filepath.Join(r.Objects(), stemKey("sep-unknown", stemVoice, "flac")), filepath.Join(r.Objects(), crashed), cut} {
			if err := os.Chtimes(path, old, old); err != nil {
				t.Fatal(err)
			}
		}
		r.Put(stemKey("sep-foreign", stemVoice, "flac"))
		for _, dir := range []string{s.jobs.WorkDir(running.Lease), s.jobs.WorkDir(failed.Lease), filepath.Join(s.WorkDir, "rnd-1-1")} {
			if err := os.MkdirAll(filepath.Join(dir, "deep"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(s.Sweeper.Sweep(t.Context(), false), s.SweepFolders(t.Context())); err != nil {
			t.Fatal(err)
		}
		want := []string{stemKey(done.ID, stemBackground, "flac"), stemKey(done.ID, stemVoice, "flac"), stemKey(running.ID, stemVoice, "flac"),
			stemKey("sep-foreign", stemVoice, "flac"), stemKey(done.ID, stemVoice, "peaks")}
		if got := r.Keys("separation/"); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
			t.Errorf("kept %v, want %v", got, want)
		}
		if got := r.Keys("uploads/sep-"); slices.Contains(got, crashed) || !slices.Contains(got, fresh) {
			t.Errorf("sources without a job: %v, want only the new one, %s", got, fresh)
		}
		left, err := os.ReadDir(s.WorkDir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range left {
			names = append(names, e.Name())
		}
		if want := []string{"rnd-1-1", filepath.Base(s.jobs.WorkDir(running.Lease))}; !slices.Equal(names, want) {
			t.Errorf("work folders %v, want %v", names, want)
		}
		r.age(running.ID, job.TTL+time.Second)
		if err := s.SweepFolders(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(s.jobs.WorkDir(running.Lease)); !os.IsNotExist(err) {
			t.Errorf("the folder of a worker whose lease expired is still there (%v)", err)
		}
	})
}

func TestEndedJobsAreDeletedButTheirLedgerEntriesStay(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		s := r.service(func(o *Options) { o.JobLifetime = 24 * time.Hour })
		owner := r.User(9)
		old, young, running := r.enqueue(s, owner), r.enqueue(s, owner), r.enqueue(s, owner)
		r.Exec(`UPDATE jobs SET state = 'DISPOSED', finished_at = now_ms()`)
		r.Exec(`UPDATE jobs SET state = 'PROCESSING', finished_at = NULL WHERE id = $1`, running)
		r.Exec(`UPDATE jobs SET created_at = created_at - 90000000, finished_at = finished_at - 90000000 WHERE id <> $1`, young)
		if err := s.Expire(t.Context()); err != nil {
			t.Fatal(err)
		}
		for id, want := range map[string]int64{old: 0, young: 1, running: 1} {
			if n := r.Number(`SELECT COUNT(*) FROM jobs WHERE id = $1`, id); n != want {
				t.Errorf("%d rows of %s, want %d", n, id, want)
			}
		}
		if n := r.Number(`SELECT COUNT(*) FROM credit_ledger WHERE user_id = $1 AND kind = 'consume'`, owner); n != 3 {
			t.Errorf("%d charges left, want 3", n)
		}
	})
}
