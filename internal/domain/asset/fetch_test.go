package asset_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"cutroom/internal/domain/asset"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/testkit/dbtest"
)

func TestFetchToVerifiesAndKeeps(t *testing.T) {
	p := newRig(t, dbtest.SQLite(t))
	const want = "the bytes of a clip"
	key := p.upload(p.user("u"), want)
	p.setHook(nil)
	for range 3 {
		dst := filepath.Join(t.TempDir(), "src")
		must(t, p.service.FetchTo(t.Context(), key, dst))
		if got, err := os.ReadFile(dst); err != nil || string(got) != want {
			t.Errorf("fetched %q, %v", got, err)
		}
	}
	if n := p.count(http.MethodGet); n != 1 {
		t.Errorf("%d downloads, want 1", n)
	}
	missing := asset.Key{SHA256: hash, Ext: "mp4"}
	if err := p.service.FetchTo(t.Context(), missing, filepath.Join(t.TempDir(), "dst")); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("a missing asset: %v", err)
	}
	if got, err := filepath.Glob(filepath.Join(p.cache, "*.*")); err != nil || len(got) != 1 || "assets/"+filepath.Base(got[0]) != key.String() {
		t.Errorf("the cache holds %v, %v", got, err)
	}
}

// Jobs, requests and verifications read the bucket in slots of their own, four each.
func TestReadsOfTheBucketAreBounded(t *testing.T) {
	p := newRig(t, dbtest.SQLite(t))
	u, dir := p.user("u"), t.TempDir()
	const clips = 15
	var keys []asset.Key
	for i := range clips {
		keys = append(keys, p.upload(u, fmt.Sprint("clip ", i)))
	}
	arrived, gate := make(chan struct{}, clips), make(chan struct{})
	p.setHook(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet {
			arrived <- struct{}{}
			<-gate
		}
		return false
	})
	var all sync.WaitGroup
	for i, key := range keys {
		all.Go(func() {
			var err error
			switch dst := filepath.Join(dir, fmt.Sprint(i)); i % 3 {
			case 0:
				err = p.service.FetchTo(t.Context(), key, dst)
			case 1:
				err = p.service.FetchForRequest(t.Context(), key, dst)
			case 2:
				_, err = p.askForSize(u, fmt.Sprint("clip ", i), 1)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	for range 12 {
		<-arrived
	}
	select {
	case <-arrived:
		t.Error("a fifth read of a kind began while four were running")
	case <-time.After(100 * time.Millisecond):
	}
	close(gate)
	all.Wait()
	if n := p.count(http.MethodGet); n != clips {
		t.Errorf("%d downloads, want %d", n, clips)
	}
}

func TestDamageInTransitDoesNotDeleteTheObject(t *testing.T) {
	p := newRig(t, dbtest.SQLite(t))
	const body = "0123456789"
	key := p.upload(p.user("u"), body)
	var once sync.Once
	p.setHook(func(w http.ResponseWriter, r *http.Request) (handled bool) {
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
	must(t, p.service.FetchTo(t.Context(), key, dst))
	if got, err := os.ReadFile(dst); err != nil || string(got) != body {
		t.Errorf("fetched %q, %v", got, err)
	}
	if p.count(http.MethodDelete) != 0 {
		t.Error("the intact object was deleted")
	}
}
