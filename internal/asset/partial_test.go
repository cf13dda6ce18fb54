package asset_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"cutroom/internal/asset"
	"cutroom/internal/objectstore"
)

// forgetful removes the store's hash from responses.
type forgetful struct{ http.ResponseWriter }

func (w forgetful) WriteHeader(status int) {
	w.Header().Del("x-amz-checksum-sha256")
	w.ResponseWriter.WriteHeader(status)
}

func TestPartial(t *testing.T) {
	s := newStore(t)
	service, cache, _ := s.service(t, maxBytes)
	body := bytes.Repeat([]byte("0123456789abcdef"), 17<<16) // 17 MiB
	key := s.upload(t, service, body)
	open := func() (*asset.Partial, error) {
		t.Helper()
		found, errs := service.Lookup(t.Context(), []string{key})
		if errs[0] != nil {
			t.Fatal(errs[0])
		}
		p, err := service.OpenPartial(t.Context(), found[0], filepath.Join(t.TempDir(), "part"))
		if err == nil {
			t.Cleanup(func() { p.Close() })
		}
		return p, err
	}
	whole := func() {
		t.Helper()
		if err := service.FetchTo(t.Context(), key, filepath.Join(t.TempDir(), "whole")); err != nil {
			t.Fatal(err)
		}
	}

	// If the store has no hashes, one read of the whole asset verifies it for all users.
	s.setHook(func(w http.ResponseWriter, r *http.Request) bool {
		s.standIn.ServeHTTP(forgetful{w}, r)
		return true
	})
	if _, err := open(); !errors.Is(err, asset.ErrWhole) {
		t.Errorf("unverified bytes: %v", err)
	}
	whole()
	if _, err := open(); !errors.Is(err, asset.ErrWhole) {
		t.Errorf("a cached copy: %v", err)
	}
	if err := cache.Drop(filepath.Base(key)); err != nil {
		t.Fatal(err)
	}
	p, err := open()
	if err != nil {
		t.Fatal(err)
	}

	// Overlapping and adjacent spans share one request.
	s.setHook(nil)
	spans := []objectstore.Span{{From: 5 << 20, To: 6 << 20}, {From: 5<<20 + 7, To: 6<<20 + 9}, {From: 6<<20 + 1000, To: 6<<20 + 2000}, {From: 17<<20 - 3, To: 17 << 20}}
	if cost := p.Cost(spans...); cost != 1<<20+2000+3 {
		t.Errorf("cost %d", cost)
	}
	for range 2 {
		if err := p.Fetch(spans...); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.count(http.MethodGet); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
	got := make([]byte, 16)
	for _, off := range []int64{5 << 20, 9<<20 + 5, 17<<20 - 16} {
		if n, err := p.ReadAt(got, off); err != nil && !errors.Is(err, io.EOF) || !bytes.Equal(got[:n], body[off:][:n]) {
			t.Errorf("at %d: %q, %v", off, got[:n], err)
		}
	}
	if n := s.count(http.MethodGet); n != 4 {
		t.Errorf("%d requests, want 4: two reads need bytes that were not fetched", n)
	}
	for _, bad := range []objectstore.Span{{From: -1, To: 5}, {From: 0, To: 17<<20 + 1}} {
		if err := p.Fetch(bad); !errors.Is(err, asset.ErrWhole) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	many := make([]objectstore.Span, 3000)
	for i := range many {
		many[i] = objectstore.Span{From: int64(i) * 5000, To: int64(i)*5000 + 1}
	}
	s.setHook(nil)
	if err := p.Fetch(many...); err != nil || s.count(http.MethodGet) > 512 {
		t.Errorf("%d requests for 3000 spans: %v", s.count(http.MethodGet), err)
	}

	// The object is replaced.
	body[0]++
	file := filepath.Join(t.TempDir(), "other")
	if err := errors.Join(os.WriteFile(file, body, 0o600), s.client.Put(t.Context(), key, file, "")); err != nil {
		t.Fatal(err)
	}
	if err := p.Fetch(objectstore.Span{From: 16 << 20, To: 16<<20 + 1}); !errors.Is(err, asset.ErrWhole) {
		t.Errorf("spans of a replaced object: %v", err)
	}
	if _, err := open(); !errors.Is(err, asset.ErrWhole) {
		t.Errorf("an object with other bytes: %v", err)
	}
}
