package objectstore_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"cutroom/internal/objectstore"
)

func TestFetchSpans(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend) {
		store, key, data := b.bucket(t, nil), space()+"film.mp4", bytes.Repeat([]byte("0123456789"), 100_000)
		file := filepath.Join(t.TempDir(), "film.mp4")
		put := func() objectstore.Info {
			t.Helper()
			if _, err := store.Stat(t.Context(), key); err == nil {
				data[0]++
			}
			if err := errors.Join(os.WriteFile(file, data, 0o600), store.Put(t.Context(), key, file, "")); err != nil {
				t.Fatal(err)
			}
			info, err := store.Stat(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			return info
		}
		info := put()
		f, err := os.Create(filepath.Join(t.TempDir(), "part"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		spans := []objectstore.Span{{From: 0, To: 10}, {From: 500_001, To: 700_000}, {From: 999_999, To: 1_000_000}}
		if err := store.FetchSpans(t.Context(), info, f, spans...); err != nil {
			t.Fatal(err)
		}
		want := make([]byte, len(data))
		for _, s := range spans {
			copy(want[s.From:s.To], data[s.From:s.To])
		}
		if got, err := os.ReadFile(f.Name()); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes, or others than those of the spans: %v", len(got), err)
		}
		put()
		if err := store.FetchSpans(t.Context(), info, f, spans[0]); !errors.Is(err, objectstore.ErrChanged) {
			t.Errorf("spans of a replaced object: %v", err)
		}
	})
}

// A hash that the store computed at the upload is known without reading the object.
func TestSHA256(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend) {
		store, key, data := b.bucket(t, nil), space()+"film.mp4", []byte("a film")
		want := sha256.Sum256(data)
		url, err := store.PresignPut(t.Context(), key, "video/mp4", int64(len(data)), want, time.Minute, false)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "video/mp4")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		info, err := store.Stat(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		sum, etag, err := store.SHA256(t.Context(), key)
		if unknown := b.real && sum == nil; err != nil || !unknown && !bytes.Equal(sum, want[:]) || etag != info.ETag {
			t.Errorf("%x of %s: %v; want %x, or nothing from a real store, of %s", sum, etag, err, want, info.ETag)
		}
	})
}
