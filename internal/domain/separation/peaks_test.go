package separation

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"cutroom/internal/base/fault"
	"cutroom/internal/testkit/jobtest"
	"cutroom/internal/work/derived"
	"cutroom/internal/work/job"
	"cutroom/internal/work/quota"
)

// The first request for the peaks of a stem that has none computes and stores them. If the job is deleted meanwhile, no
// peaks are left.
func TestPeaksAreMadeLater(t *testing.T) {
	t.Parallel()
	r := onSQLite(t).withProvider()
	s := r.service()
	id := r.enqueueAudio(s, r.User(1))
	stop := r.run(s)
	r.waitState(id, StateReady)
	stop()
	token := s.signer.token(id, stemVoice, time.Now().Add(time.Hour))
	storedKeys := func() int64 {
		return r.Number(`SELECT COUNT(peaks_key) FROM separation_stems WHERE stem_id = $1`, stemVoice)
	}
	want, err := s.Peaks(t.Context(), id, stemVoice, token, 1000)
	if err != nil || want.Len() < 900 || storedKeys() != 1 {
		t.Fatalf("%d pairs, %d stored keys: %v", want.Len(), storedKeys(), err)
	}
	forget := func() {
		r.Exec(`UPDATE separation_stems SET peaks_key = NULL`)
		if err := r.Store.Delete(t.Context(), stemKey(id, stemVoice, "peaks")); err != nil {
			t.Fatal(err)
		}
	}
	forget()
	got, err := s.Peaks(t.Context(), id, stemVoice, token, 1000)
	if err != nil || !slices.Equal(got.Pairs, want.Pairs) || storedKeys() != 1 {
		t.Errorf("%d pairs, %d stored keys: %v", got.Len(), storedKeys(), err)
	}
	forget()
	going := r.service(func(o *Options) {
		o.Store = jobtest.Store{Store: r.Store, OnPut: func() { r.Exec(`UPDATE jobs SET deleted_at = now_ms()`) }}
	})
	if _, err := going.Peaks(t.Context(), id, stemVoice, token, 1000); !errors.Is(err, ErrNoStem) {
		t.Errorf("the peaks of a job deleted meanwhile: %v", err)
	}
	if keys := r.Keys(stemKey(id, stemVoice, "peaks")); len(keys) > 0 || storedKeys() > 0 {
		t.Errorf("left: %v, %d stored keys", keys, storedKeys())
	}
}

// A WAV file is made only if the samples of the stem fit the account and the disk, whatever the stem's own size.
func TestWAVIsMadeOnlyIfItFits(t *testing.T) {
	t.Parallel()
	r := onSQLite(t).withProvider()
	free, most := int64(1<<40), int64(0)
	s := r.service(func(o *Options) {
		o.OnDemand = derived.New(derived.Options{AtOnce: 1, PerHolder: 1, MaxWait: 2 * time.Minute, Log: o.Log,
			Space: derived.NewSpace(func(context.Context) (int64, error) { return free, nil })})
	})
	owner := r.User(1)
	id := r.enqueueAudio(s, owner)
	stop := r.run(s)
	r.waitState(id, StateReady)
	stop()
	r.Exec(`UPDATE separation_stems SET size_bytes = 10`) // as if it were silent
	open := func() error {
		s.Quota = quota.New(quota.Usage{StoredBytes: most}, job.WaitingJobs, job.StoredBytes)
		obj, _, err := s.OpenStem(t.Context(), id, stemVoice, s.signer.token(id, stemVoice, time.Now().Add(time.Hour)), formatWAV)
		if err == nil {
			err = obj.Close()
		}
		return err
	}
	stored := r.Number(`SELECT stored_bytes FROM jobs WHERE id = $1`, id)
	if err := open(); err != nil {
		t.Fatal(err)
	}
	length := r.Number(`SELECT wav_size_bytes - 44 FROM separation_stems WHERE stem_id = $1`, stemVoice) // without its header
	if err := r.Store.Delete(t.Context(), stemKey(id, stemVoice, "wav")); err != nil {
		t.Fatal(err)
	}
	r.Exec(`UPDATE jobs SET stored_bytes = $1`, stored)
	most = stored + length - 1
	if refused := fault.As(open()); refused == nil || refused.Code != "storage_full" {
		t.Errorf("for an account without room: %v", refused)
	}
	free, most = length+9, 0 // the samples and a copy of the stem, but for a byte
	if err := open(); !errors.Is(err, derived.ErrBusy) {
		t.Errorf("on a disk without room: %v", err)
	}
	if keys := r.Keys(stemKey(id, stemVoice, "wav")); len(keys) > 0 || r.Number(`SELECT stored_bytes FROM jobs WHERE id = $1`, id) != stored {
		t.Errorf("left: %v", keys)
	}
	free, most = length+length/100, stored+length+length/100
	if err := open(); err != nil {
		t.Errorf("with room: %v", err)
	}
}
