package analysis

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"cutroom/internal/asset"
	"cutroom/internal/dbtest"
	"cutroom/internal/derived"
	"cutroom/internal/diskcache"
	"cutroom/internal/fault"
	"cutroom/internal/media"
	"cutroom/internal/media/confine"
	"cutroom/internal/mediatest"
	"cutroom/internal/objectstore"
	"cutroom/internal/sandbox/bucket"
	"cutroom/internal/user"
)

func TestMain(m *testing.M) {
	confine.Main()
	os.Exit(m.Run())
}

// An analysis that takes too long is a 400. For an hour, further requests get the 400 at once.
func TestAnalysesAreBounded(t *testing.T) {
	opts := bucket.Options{Name: "bucket", AccessKeyID: "id", SecretAccessKey: "secret", Dir: t.TempDir()}
	standIn, err := bucket.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(standIn)
	defer server.Close()
	store := objectstore.NewBucket(objectstore.BucketConfig{Endpoint: server.URL, Bucket: opts.Name, AccessKeyID: opts.AccessKeyID,
		SecretAccessKey: opts.SecretAccessKey, MaxBackoff: time.Millisecond})
	d := dbtest.SQLite(t)
	owner, err := user.Upsert(t.Context(), d, user.Identity{Provider: "provider_a", Subject: "ann"}, "ann@example.test", "Ann", "")
	if err != nil {
		t.Fatal(err)
	}
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
	s := New(Options{Assets: asset.New(asset.Options{DB: d, Bucket: store, Cache: cache, MaxBytes: 1 << 30}), Bucket: store, Media: runner,
		Slots: media.NewFairSlots(media.FairLimits{Slots: 1}), Maker: maker,
		WorkDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	put := func(path string) asset.Key {
		t.Helper()
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(content)
		key := asset.Key{SHA256: hex.EncodeToString(sum[:]), Ext: "wav"}
		if err := store.Put(t.Context(), key.String(), path, ""); err != nil {
			t.Fatal(err)
		}
		return key
	}
	want := func(when string, key asset.Key, kind fault.Kind) {
		t.Helper()
		_, err := s.Get(t.Context(), owner.ID, key, 100)
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
	removed := source{Found: asset.Found{Key: damaged}, owner: owner.ID, field: "assetKey"}
	if f := fault.As(s.derive(t.Context(), removed, nil)); f == nil || f.Kind != fault.NotFound {
		t.Errorf("removed since it was found: %v", f)
	}
}
