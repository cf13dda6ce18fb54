// One attempt at a job beside stops, lost leases, deletions, and a provider that measures more or less than expected.

package separation

import (
	"encoding/binary"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cutroom/internal/sandbox/fake"
	fakeprovider "cutroom/internal/sandbox/separator"
	"cutroom/internal/testkit/jobtest"
	"cutroom/internal/work/job"
)

func (r *harness) fault(rules ...fake.Rule) {
	r.T.Helper()
	if err := r.provider.Faults.Add(rules...); err != nil {
		r.T.Fatal(err)
	}
}

func TestStopHandsBack(t *testing.T) {
	t.Parallel()
	paid := row{State: StateProcessing, Attempts: 1, Intent: true}
	tests := []struct {
		name   string
		faults []fake.Rule
		step   string // the service stops during this call
		want   row
		calls  int // calls of audio-separation after the hand-back
	}{
		{name: "while uploading", faults: []fake.Rule{{Step: fakeprovider.StepUpload, Kind: fake.KindStall}},
			step: fakeprovider.StepUpload, want: row{State: StateQueued}},
		// If the stop comes after the response, the job keeps its state.
		{name: "during the submission", faults: []fake.Rule{{Step: fakeprovider.StepSubmit, Kind: fake.KindDelay, DelayMs: 400},
			{Step: fakeprovider.StepProgress, Kind: fake.KindStall}}, step: fakeprovider.StepSubmit, want: paid, calls: 1},
		{name: "while the busy provider is asked", faults: []fake.Rule{{Step: fakeprovider.StepSubmit, Kind: fake.KindStatus, Status: 429,
			DelayMs: 400, Headers: map[string]string{"Retry-After": "1"}}}, step: fakeprovider.StepSubmit, want: row{State: StateQueued}, calls: 1},
		{name: "while polling", faults: []fake.Rule{{Step: fakeprovider.StepProgress, Kind: fake.KindStall}},
			step: fakeprovider.StepProgress, want: paid, calls: 1},
		{name: "while downloading", faults: []fake.Rule{{Step: fakeprovider.StepDownload, Kind: fake.KindStall}},
			step: fakeprovider.StepDownload, want: paid, calls: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := onSQLite(t).withProvider()
			owner := r.User(1)
			patient := func(o *Options) { o.BusyWait = time.Hour }
			s := r.service(patient)
			r.fault(tt.faults...)
			id := r.enqueueAudio(s, owner)
			stop := r.run(s)
			r.Eventually("the call", func() bool { return r.provider.Faults.Count(tt.step) > 0 })
			if left, _ := filepath.Glob(filepath.Join(s.WorkDir, "*", "*")); tt.step == fakeprovider.StepProgress && len(left) > 0 {
				t.Errorf("the source is still here after its upload: %v", left)
			}
			stop()
			got := r.row(id)
			if got.State != tt.want.State || got.Attempts != tt.want.Attempts || got.Intent != tt.want.Intent || got.Leased {
				t.Errorf("after the stop %+v, want %+v without a lease", got, tt.want)
			}
			if n := r.provider.Faults.Count(fakeprovider.StepSubmit); n != tt.calls {
				t.Errorf("submitted %d times, want %d", n, tt.calls)
			}
			r.booked(owner, 0) // no refund
			r.provider.Faults.Clear()
			stop = r.run(r.service(patient))
			if end := r.waitState(id, StateReady); end.Attempts != 1 {
				t.Errorf("%d attempts: a stop counted as one", end.Attempts)
			}
			stop()
			if titles := r.provider.Titles(); !slices.Equal(titles, []string{id}) {
				t.Errorf("the provider was paid for %v", titles)
			}
			r.booked(owner, 0)
		})
	}
}

// A worker that loses its lease during an upload stops without an error. The job is charged once.
func TestSlowWorkerMeetsItsSuccessor(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		r.withProvider()
		owner := r.User(1)
		slow, quick := r.service(), r.service()
		r.fault(fake.Rule{Step: fakeprovider.StepUpload, Times: 1, Kind: fake.KindStall})
		id := r.enqueueAudio(slow, owner)
		j := r.claimed(slow)
		var working sync.WaitGroup
		working.Go(func() { slow.work(t.Context(), j) })
		r.Eventually("the upload", func() bool { return r.provider.Faults.Count(fakeprovider.StepUpload) > 0 })
		r.Eventually("its lease has expired", func() bool { // repeated, because the worker may renew the lease
			r.age(id, job.TTL+time.Second)
			if err := quick.recoverDead(t.Context()); err != nil {
				t.Fatal(err)
			}
			return r.row(id).Fence > j.Fence
		})
		stop := r.run(quick)
		r.waitState(id, StateReady)
		working.Wait() // the heartbeat notices the loss and aborts the upload
		stop()
		if titles := r.provider.Titles(); !slices.Equal(titles, []string{id}) {
			t.Errorf("the provider was paid for %v", titles)
		}
		if x := r.row(id); x.Attempts != 2 || x.State != StateReady {
			t.Errorf("%+v", x)
		}
		if stored, rows := len(r.Keys("separation/")), r.Number(`SELECT COUNT(object_key) + COUNT(peaks_key) FROM separation_stems`); int64(stored) != rows {
			t.Errorf("%d stems and peaks in the store, %d in the database", stored, rows)
		}
		r.booked(owner, 0)
	})
}

// After a deletion, the worker notices that it has lost the job, and deletes what it has stored since.
func TestDeletionDuringCollection(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		r.withProvider()
		owner := r.User(1)
		var lists atomic.Int32
		s := r.service(func(o *Options) {
			o.Store = jobtest.Store{Store: r.Store, OnList: func(prefix string) { // adds an object just before the listing
				r.Put(prefix + "voice_all.flac")
				lists.Add(1)
			}}
		})
		r.fault(fake.Rule{Step: fakeprovider.StepDownload, Kind: fake.KindStall, Times: 1})
		r.enqueueAudio(s, owner)
		stop := r.run(s)
		r.Eventually("the download", func() bool { return r.provider.Faults.Count(fakeprovider.StepDownload) > 0 })
		r.Exec(`UPDATE users SET erasing_at = now_ms() WHERE id = $1`, owner)
		// Another replica erases the account. The worker may miss its notification.
		if err := r.service().Erase(t.Context(), owner); err != nil {
			t.Fatal(err)
		}
		r.Exec(`DELETE FROM users WHERE id = $1`, owner)
		r.provider.Faults.Clear()
		r.Eventually("a look for what it stored", func() bool { return lists.Load() > 0 })
		stop()
		if keys := append(r.Keys("separation/"), r.Keys("uploads/")...); len(keys) > 0 {
			t.Errorf("left: %v", keys)
		}
	})
}

// If the provider measures more than the user paid for, the service does not make the paid call.
func TestLongerThanPaidIsNotSubmitted(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		r.withProvider()
		owner := r.User(3)
		s := r.service()
		stop := r.run(s)
		r.fault(fake.Rule{Step: fakeprovider.StepRegister, Kind: fake.KindGarbage, Body: `{"seq":7,"durationMs":301001}`})
		id := r.enqueueAudio(s, owner)
		if x := r.waitState(id, StateFailed); x.Error != errPriceMismatch.Sentence || x.Code != "price_mismatch" || x.Attempts != 1 {
			t.Errorf("%+v, want %q", x, errPriceMismatch.Sentence)
		}
		r.booked(owner, 3)
		if n := r.provider.Faults.Count(fakeprovider.StepSubmit); n != 0 {
			t.Errorf("%d paid calls, want none", n)
		}
		r.provider.Faults.Clear()
		stop()
		// The provider also counts the padding of an encoder, so a small difference is accepted.
		for ms, want := range map[int64]bool{301_000: true, 301_400: true, 301_600: false, 900_000: false, 0: true} {
			if j := (claimedJob{DurationMs: 301_000, Credits: 1}); j.covers(ms) != want {
				t.Errorf("one credit for 301 s covers %d ms: %v, want %v", ms, !want, want)
			}
		}
	})
}

// A program that writes a WAV file to a pipe does not know its length. Such a stem has the samples that are there.
func TestStemsWhoseHeaderDoesNotSayTheirLength(t *testing.T) {
	t.Parallel()
	r := onSQLite(t).withProvider()
	s := r.service()
	defer r.run(s)()
	whole := tones()
	size := len(whole) - 44
	for name, length := range map[string]uint32{"ffmpeg's pipe": 0xFFFFFFFF, "sox's pipe": 0x7FFFF000, "zero": 0,
		"more than there is": uint32(size + 6), "an odd byte more": uint32(size + 1)} {
		stem := slices.Clone(whole)
		binary.LittleEndian.PutUint32(stem[40:], length)
		binary.LittleEndian.PutUint32(stem[4:], length+36)
		r.provider.Configure(func(b *fakeprovider.Behaviour) {
			b.Bytes = map[string][]byte{"voice": stem, "background": stem}
		})
		owner := r.User(1)
		id := r.enqueueAudio(s, owner)
		r.waitState(id, StateReady)
		if n := r.Number(`SELECT COUNT(*) FROM separation_stems WHERE job_id = $1 AND duration_ms = 500 AND object_key LIKE '%.flac'`, id); n != 2 {
			t.Errorf("%s: %d stems of 500 ms", name, n)
		}
		r.booked(owner, 0)
	}
}
