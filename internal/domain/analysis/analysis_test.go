package analysis

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"cutroom/internal/base/fault"
	"cutroom/internal/domain/asset"
	"cutroom/internal/film/media"
	"cutroom/internal/film/media/confine"
	"cutroom/internal/storage/disk"
	"cutroom/internal/storage/diskcache"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/testkit/jobtest"
	"cutroom/internal/testkit/mediatest"
	"cutroom/internal/work/derived"
)

func TestMain(m *testing.M) {
	confine.Main()
	os.Exit(m.Run())
}

// Only an answer about money ends the measurement of a long file at its declared length.
func TestWhatIsUnknownIsNotTooExpensive(t *testing.T) {
	frame := append([]byte{0xff, 0xe3, 0x18, 0xc4}, make([]byte, 68)...) // 72 ms of MP3 with 8 kbit/s
	file := filepath.Join(t.TempDir(), "long.mp3")
	if err := os.WriteFile(file, bytes.Repeat(frame, 60_000), 0o600); err != nil {
		t.Fatal(err)
	}
	poor, away := fault.New(fault.PaymentRequired, "insufficient_credits"), errors.New("the database does not answer")
	for _, test := range []struct{ answer, want error }{{poor, nil}, {away, away}, {fault.Busy(time.Second), fault.Busy(time.Second)}} {
		found, err := (&Service{}).extent(t.Context(), file, func(time.Duration) error { return test.answer })
		if !errors.Is(err, test.want) || (err == nil) != (found.Declared > longFile) {
			t.Errorf("%v: %+v, %v", test.answer, found, err)
		}
	}
}

// An analysis that takes too long is a 400. For an hour, further requests get the 400 at once.
func TestAnalysesAreBounded(t *testing.T) {
	h := jobtest.New(t, dbtest.SQLite(t))
	h.UseBucket()
	store, owner := h.Bucket, h.User(0)
	cache, err := diskcache.New(diskcache.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	runner, err := media.New(media.Config{})
	if err != nil {
		t.Fatal(err)
	}
	maker := derived.New(derived.Options{AtOnce: 1, PerHolder: 1, MaxWait: time.Minute, Log: slog.New(slog.DiscardHandler),
		Space: derived.NewSpace(func(context.Context) (int64, error) { return 1 << 40, nil })})
	defer maker.Close()
	s := New(Options{Assets: asset.New(asset.Options{DB: h.DB, Bucket: store, Cache: cache, MaxBytes: 1 << 30}), Bucket: store, Media: runner,
		Slots: media.NewFairSlots(media.FairLimits{Slots: 1}), Maker: maker, WorkDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	put := func(path string) asset.Key {
		t.Helper()
		sum, _, err := disk.Digest(t.Context(), path)
		key := asset.Key{SHA256: sum, Ext: "wav"}
		if err := errors.Join(err, store.Put(t.Context(), key.String(), path, "")); err != nil {
			t.Fatal(err)
		}
		return key
	}
	want := func(when string, key asset.Key, kind fault.Kind) {
		t.Helper()
		_, err := s.Get(t.Context(), owner, key, 100)
		if f := fault.As(err); (f == nil) != (err == nil) || f != nil && f.Kind != kind || f == nil && kind != 0 {
			t.Errorf("%s: %v, want kind %v", when, err, kind)
		}
	}

	tone := put(mediatest.Tone(t, 440, time.Second))
	s.limits.Timeout = time.Nanosecond
	want("out of time", tone, fault.Invalid)
	s.limits = media.AnalysisLimits
	want("soon after", tone, fault.Invalid)
	earlier, err := json.Marshal(result[Analysis]{Version: version, TriedAt: time.Now().Add(-retryAfter - time.Minute).UnixMilli()})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "earlier")
	if err := errors.Join(os.WriteFile(file, earlier, 0o600), store.Put(t.Context(), tone.Derived("analysis.json"), file, "")); err != nil {
		t.Fatal(err)
	}
	want("an hour later", tone, 0)

	damaged := put(mediatest.Tone(t, 441, time.Second))
	if err := store.Put(t.Context(), damaged.String(), mediatest.Tone(t, 442, time.Second), ""); err != nil {
		t.Fatal(err)
	}
	want("bytes that do not hash to the key", damaged, fault.NotFound)
	removed := source{Found: asset.Found{Key: damaged}, owner: owner, field: "assetKey"}
	if f := fault.As(s.derive(t.Context(), removed, nil)); f == nil || f.Kind != fault.NotFound {
		t.Errorf("removed since it was found: %v", f)
	}
}
