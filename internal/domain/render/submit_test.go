package render

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/domain/asset"
	"cutroom/internal/film/timeline"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/storage/staging"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/work/idempotency"
)

// A submission looks up its objects concurrently, each once.
func TestAssetsAreLookedUpConcurrently(t *testing.T) {
	var asked atomic.Int64
	missing, together := map[string]bool{}, make(chan struct{})
	meet := sync.OnceFunc(func() { close(together) })
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) > 1 {
			meet()
		}
		select { // the first lookup waits for a second one
		case <-together:
		case <-time.After(10 * time.Second):
			t.Error("one lookup at a time")
		}
		if missing[strings.TrimPrefix(r.URL.Path, "/bucket/")] {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("ETag", `"e"`)
		w.Header().Set("Content-Length", "1")
		w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
	}))
	defer store.Close()
	bucket := objectstore.NewBucket(objectstore.BucketConfig{Endpoint: store.URL, Bucket: "bucket", AccessKeyID: "id", SecretAccessKey: "secret"})
	key := func(n int) string { return asset.Key{SHA256: fmt.Sprintf("%064x", n), Ext: "mp4"}.String() }
	assets := map[string]asset.Key{}
	for n := range 12 {
		assets[key(n)] = asset.Key{SHA256: fmt.Sprintf("%064x", n), Ext: "mp4"}
	}
	tl := timeline.Legacy(key(0), time.Second)
	for n := range 24 {
		s := tl.Segments[0]
		s.SourceKey = key(n % 12)
		tl.Segments = append(tl.Segments, s)
	}
	s := New(Options{Assets: asset.New(asset.Options{DB: dbtest.SQLite(t), Bucket: bucket, MaxBytes: 1 << 30})})
	resolve := func() (map[string]object, error) {
		r := resolver{s: s, sub: Submission{Timeline: tl, Assets: assets}, sources: map[string]object{}}
		return r.sources, r.assets(t.Context())
	}
	found, err := resolve()
	if err != nil || len(found) != 12 || found[key(3)] != (object{Object: key(3), SHA256: fmt.Sprintf("%064x", 3), Asset: true}) {
		t.Errorf("%v, %d objects: %v", err, len(found), found[key(3)])
	}
	if n := asked.Load(); n != 12 {
		t.Errorf("%d lookups", n)
	}
	missing[key(9)], missing[key(4)] = true, true
	_, err = resolve()
	if f := fault.As(err); f == nil || f.Kind != fault.NotFound || f.Sentence != "segments[5].sourceAssetKey: the asset does not exist in the object store" {
		t.Errorf("missing: %v", err)
	}
}

// A refused submission deletes its stored uploads at once.
func TestARefusedSubmissionLeavesNoUpload(t *testing.T) {
	r := newHarness(t, dbtest.Open(t, db.Options{URL: "sqlite::memory:", MaxPool: 1}))
	path := filepath.Join(t.TempDir(), "upload")
	wav := "RIFF\x24\x08\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x80\xbb\x00\x00\x00\x77\x01\x00\x02\x00\x10\x00data\x00\x08\x00\x00" + strings.Repeat("\x00", 2048)
	if err := os.WriteFile(path, []byte(wav), 0o600); err != nil {
		t.Fatal(err)
	}
	s := New(Options{DB: r.DB, Store: r.Store, Log: slog.New(slog.DiscardHandler)})
	file := staging.File{Path: path, SizeBytes: int64(len(wav)), SHA256: strings.Repeat("0", 64)}
	_, err := s.Submit(t.Context(), "nobody", Submission{Timeline: timeline.Legacy("video", time.Second),
		Files: map[string]staging.File{"video": file}}, idempotency.Key{})
	if f := fault.As(err); f == nil || f.Code != "account_deleted" {
		t.Fatalf("a submission of an unknown user: %v", err)
	}
	if err := r.Store.List(t.Context(), "uploads/", func(o objectstore.Info) error {
		t.Errorf("%s is left", o.Key)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
