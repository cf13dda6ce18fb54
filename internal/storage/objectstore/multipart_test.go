package objectstore_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"cutroom/internal/storage/objectstore"
)

// Abandoned uploads are aborted: only old ones, and only under our prefixes.
func TestAbortUploads(t *testing.T) { eachBackend(t, testAbortUploads) }

func testAbortUploads(t *testing.T, b *backend) {
	bucket := b.bucket(t, nil)
	for _, key := range []string{"abort/a.mp4", "abort/b.mp4", "abort/b.mp4", "another/a.mp4"} {
		if _, err := bucket.CreateUpload(t.Context(), key, "video/mp4"); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		prefix string
		age    time.Duration
		want   int
	}{{"abort/", 24 * time.Hour, 0}, {"abort/", -time.Minute, 3}, {"abort/", -time.Minute, 0}, {"another/", -time.Minute, 1}} {
		if n, err := bucket.AbortUploads(t.Context(), tt.age, tt.prefix, "abortive/"); err != nil || n != tt.want {
			t.Errorf("%s, older than %v: %d are aborted, want %d (%v)", tt.prefix, tt.age, n, tt.want, err)
		}
	}
	b.setFault(func(w http.ResponseWriter, r *http.Request) bool {
		return r.Method == http.MethodGet && r.URL.Query().Has("uploads") && answer(http.StatusForbidden, "AccessDenied")(w, r)
	})
	if _, err := bucket.AbortUploads(t.Context(), 0, "abort/"); !errors.Is(err, objectstore.ErrUnsupported) {
		t.Errorf("a key that may not list uploads: %v", err)
	}
}
