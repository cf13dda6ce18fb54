package asset_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"cutroom/internal/asset"
	"cutroom/internal/objectstore"
)

// names returns the names of the cache's files, except its marker.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var out []string
	for _, e := range entries {
		if e.Name() != "boot-id" {
			out = append(out, e.Name())
		}
	}
	return out
}

// hold has a hook that blocks downloads until the gate is closed.
type hold struct {
	arrived chan struct{} // receives a value for each blocked download
	gate    chan struct{}
}

func newHold() hold { return hold{make(chan struct{}, 100), make(chan struct{})} }

func (h hold) hook(_ http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet {
		h.arrived <- struct{}{}
		select {
		case <-h.gate:
		case <-r.Context().Done():
		}
	}
	return false
}

func TestFetchToVerifiesAndKeeps(t *testing.T) {
	s := newStore(t)
	service, _, dir := s.service(t, maxBytes)
	want := []byte("the bytes of a clip")
	key := s.upload(t, service, want)
	s.setHook(nil)
	for range 3 {
		dst := filepath.Join(t.TempDir(), "src")
		must(t, service.FetchTo(t.Context(), key, dst))
		if got, err := os.ReadFile(dst); err != nil || !bytes.Equal(got, want) {
			t.Errorf("fetched %q, %v", got, err)
		}
		if st, err := os.Stat(dst); err != nil || st.Mode().Perm()&0o222 != 0 {
			t.Errorf("the shared file is writable: %v, %v", st.Mode(), err)
		}
	}
	if n := s.count(http.MethodGet); n != 1 {
		t.Errorf("%d downloads, want 1", n)
	}
	if got := names(t, dir); len(got) != 1 || "assets/"+got[0] != key.String() {
		t.Errorf("the cache holds %v", got)
	}
	dst := filepath.Join(t.TempDir(), "no", "such", "folder")
	if err := service.FetchTo(t.Context(), key, dst); err == nil || errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("into a missing folder: %v", err)
	}
	missing := asset.Key{SHA256: hash, Ext: "mp4"}
	if err := service.FetchTo(t.Context(), missing, filepath.Join(t.TempDir(), "dst")); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("a missing asset: %v", err)
	}
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("a failed fetch left %v", got)
	}
}

func TestDownloadsAreBounded(t *testing.T) {
	s := newStore(t)
	service, _, _ := s.service(t, maxBytes)
	var keys []asset.Key
	for i := range 9 {
		keys = append(keys, s.upload(t, service, fmt.Appendf(nil, "clip %d", i)))
	}
	h := newHold()
	s.setHook(h.hook)
	dir := t.TempDir()
	var all sync.WaitGroup
	for i, key := range keys {
		all.Go(func() {
			if err := service.FetchTo(t.Context(), key, filepath.Join(dir, fmt.Sprint(i))); err != nil {
				t.Error(err)
			}
		})
	}
	for range 4 {
		<-h.arrived
	}
	select {
	case <-h.arrived:
		t.Error("a fifth download began while four were running")
	case <-time.After(100 * time.Millisecond):
	}
	close(h.gate)
	all.Wait()
	if n := s.count(http.MethodGet); n != len(keys) {
		t.Errorf("%d downloads, want %d", n, len(keys))
	}
}

func TestDamageInTransitDoesNotDeleteTheObject(t *testing.T) {
	s := newStore(t)
	service, _, _ := s.service(t, maxBytes)
	body := []byte("0123456789")
	key := s.upload(t, service, body)
	var once sync.Once
	s.setHook(func(w http.ResponseWriter, r *http.Request) (handled bool) {
		if r.Method == http.MethodGet {
			once.Do(func() {
				handled = true
				w.Header().Set("Content-Length", "10")
				w.Write([]byte("012345678X"))
			})
		}
		return handled
	})
	dst := filepath.Join(t.TempDir(), "dst")
	must(t, service.FetchTo(t.Context(), key, dst))
	if got, err := os.ReadFile(dst); err != nil || !bytes.Equal(got, body) {
		t.Errorf("fetched %q, %v", got, err)
	}
	if s.count(http.MethodDelete) != 0 {
		t.Error("the intact object was deleted")
	}
}

func TestCacheDropsAnAssetThatAJobReads(t *testing.T) {
	s := newStore(t)
	service, cache, dir := s.service(t, 10)
	key := s.upload(t, service, bytes.Repeat([]byte("x"), 1000))
	held := filepath.Join(t.TempDir(), "held")
	if err := service.FetchTo(t.Context(), key, held); err != nil {
		t.Fatalf("larger than the cache: %v", err)
	}
	must(t, cache.Sweep(t.Context(), 0))
	if got := names(t, dir); len(got) != 0 {
		t.Errorf("the cache holds %v", got)
	}
	if st, err := os.Stat(held); err != nil || st.Size() != 1000 {
		t.Errorf("the job's file: %v, %v", st, err)
	}
}
