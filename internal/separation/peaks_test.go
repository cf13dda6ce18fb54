package separation

import (
	"errors"
	"slices"
	"testing"
	"time"

	"cutroom/internal/jobtest"
)

// The first request for the peaks of a stem that has none computes and stores them. If the job is
// deleted meanwhile, no peaks are left.
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
