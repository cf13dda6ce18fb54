package asset_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"cutroom/internal/asset"
	"cutroom/internal/objectstore"
)

// names returns the files of the cache without its marker.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if e.Name() != "boot-id" {
			out = append(out, e.Name())
		}
	}
	return out
}

// hold is a hook that stops downloads until open is called.
type hold struct {
	arrived chan struct{} // one for each download that waits
	gate    chan struct{}
	open    func()
}

func newHold() *hold {
	h := &hold{arrived: make(chan struct{}, 100), gate: make(chan struct{})}
	h.open = sync.OnceFunc(func() { close(h.gate) })
	return h
}

func (h *hold) hook(_ http.ResponseWriter, r *http.Request) bool {
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
	key := upload(t, service, want, "video/mp4")
	s.setHook(nil)
	for range 3 {
		dst := filepath.Join(t.TempDir(), "src")
		if err := service.FetchTo(t.Context(), key, dst); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(dst); err != nil || !bytes.Equal(got, want) {
			t.Errorf("fetched %q, %v", got, err)
		}
		if st, err := os.Stat(dst); err != nil || st.Mode().Perm()&0o222 != 0 {
			t.Errorf("the shared file may be written to: %v, %v", st.Mode(), err)
		}
	}
	if n := s.count(http.MethodGet); n != 1 {
		t.Errorf("%d downloads, want 1", n)
	}
	if got := names(t, dir); len(got) != 1 || "assets/"+got[0] != key {
		t.Errorf("the cache holds %v", got)
	}
	dst := filepath.Join(t.TempDir(), "no", "such", "folder")
	if err := service.FetchTo(t.Context(), key, dst); err == nil || errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("into a missing folder: %v", err)
	}
	missing := "assets/" + hash + ".mp4"
	if err := service.FetchTo(t.Context(), missing, filepath.Join(t.TempDir(), "dst")); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("a missing asset: %v", err)
	}
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("a failed fetch left %v", got)
	}
}

func TestJobsShareOneDownload(t *testing.T) {
	s := newStore(t)
	service, _, _ := s.service(t, maxBytes)
	key := upload(t, service, []byte("shared"), "video/mp4")
	h := newHold()
	s.setHook(h.hook)
	dir := t.TempDir()

	// The first caller gives up while the others wait.
	first, giveUp := context.WithCancel(t.Context())
	firstErr := make(chan error, 1)
	go func() { firstErr <- service.FetchTo(first, key, filepath.Join(dir, "first")) }()
	<-h.arrived
	var others sync.WaitGroup
	for i := range 8 {
		others.Go(func() {
			if err := service.FetchTo(t.Context(), key, filepath.Join(dir, fmt.Sprint(i))); err != nil {
				t.Error(err)
			}
		})
	}
	waitForWaiters(t, service, key, 9)
	giveUp()
	if err := <-firstErr; !errors.Is(err, context.Canceled) {
		t.Errorf("the first caller got %v", err)
	}
	h.open()
	others.Wait()
	if n := s.count(http.MethodGet); n != 1 {
		t.Errorf("%d downloads, want 1", n)
	}
}

func TestLastCallerEndsTheDownload(t *testing.T) {
	s := newStore(t)
	service, _, dir := s.service(t, maxBytes)
	key := upload(t, service, []byte("abandoned"), "video/mp4")
	h := newHold()
	s.setHook(h.hook)
	ctx, giveUp := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- service.FetchTo(ctx, key, filepath.Join(t.TempDir(), "dst")) }()
	<-h.arrived
	giveUp()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("FetchTo = %v", err)
	}
	if got := names(t, dir); len(got) != 0 {
		t.Errorf("the cache holds %v", got)
	}
	h.open()
	if err := service.FetchTo(t.Context(), key, filepath.Join(t.TempDir(), "dst")); err != nil {
		t.Errorf("a later caller: %v", err)
	}
}

func TestDownloadsAreBounded(t *testing.T) {
	s := newStore(t)
	service, _, _ := s.service(t, maxBytes)
	var keys []string
	for i := range 9 {
		keys = append(keys, upload(t, service, fmt.Appendf(nil, "clip %d", i), "video/mp4"))
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
		t.Error("a fifth download began while four were under way")
	case <-time.After(100 * time.Millisecond):
	}
	h.open()
	all.Wait()
	if n := s.count(http.MethodGet); n != len(keys) {
		t.Errorf("%d downloads, want %d", n, len(keys))
	}
}

func TestDamagedAssetIsRefusedAndCanBeMended(t *testing.T) {
	s := newStore(t)
	service, _, dir := s.service(t, maxBytes)
	body := []byte("what the phone hashed")
	key := upload(t, service, body, "video/mp4")
	if err := s.standIn.CorruptObject(key, []byte("what arrived in fact?")); err != nil {
		t.Fatal(err)
	}
	dst := filepath.Join(t.TempDir(), "dst")
	if err := service.FetchTo(t.Context(), key, dst); !errors.Is(err, asset.ErrCorrupt) {
		t.Fatalf("FetchTo = %v, want ErrCorrupt", err)
	}
	if _, err := os.Stat(dst); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the job was given the damaged file: %v", err)
	}
	if got := names(t, dir); len(got) != 0 {
		t.Errorf("the cache holds %v", got)
	}
	if got := upload(t, service, body, "video/mp4"); got != key { // fails when no upload is offered
		t.Errorf("uploaded as %s", got)
	}
	if err := service.FetchTo(t.Context(), key, dst); err != nil {
		t.Errorf("after the second upload: %v", err)
	}
}

func TestDamageOnTheWayIsNotHeldAgainstTheObject(t *testing.T) {
	s := newStore(t)
	service, _, _ := s.service(t, maxBytes)
	body := []byte("0123456789")
	key := upload(t, service, body, "video/mp4")
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
	if err := service.FetchTo(t.Context(), key, dst); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(dst); err != nil || !bytes.Equal(got, body) {
		t.Errorf("fetched %q, %v", got, err)
	}
	if s.count(http.MethodDelete) != 0 {
		t.Error("the sound object was deleted")
	}
}

func TestSweep(t *testing.T) {
	s := newStore(t)
	service, cache, dir := s.service(t, 100)
	fetch := func(body string) (file, held string) {
		t.Helper()
		key := upload(t, service, []byte(body), "video/mp4")
		held = filepath.Join(t.TempDir(), "held")
		if err := service.FetchTo(t.Context(), key, held); err != nil {
			t.Fatal(err)
		}
		return filepath.Base(key), held
	}
	use := func(name string, ago time.Duration) {
		t.Helper()
		at := time.Now().Add(-ago)
		if err := os.Chtimes(filepath.Join(dir, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(when string, want ...string) {
		t.Helper()
		slices.Sort(want)
		if got := names(t, dir); !slices.Equal(got, want) {
			t.Errorf("%s the cache holds %v, want %v", when, got, want)
		}
	}
	body := func(c string) string { return string(bytes.Repeat([]byte(c), 40)) }

	a, heldA := fetch(body("a"))
	b, _ := fetch(body("b"))
	use(a, 3*time.Hour)
	use(b, 2*time.Hour)
	c, _ := fetch(body("c")) // 120 bytes: the least recently used has to go
	expect("when it is full", b, c)
	if got, err := os.ReadFile(heldA); err != nil || string(got) != body("a") {
		t.Errorf("the file in use holds %d other bytes, %v", len(got), err)
	}

	old, young, foreign := "x.part", "y.part", "notes.txt"
	for _, name := range []string{old, young, foreign} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	use(old, 2*time.Hour)
	use(foreign, 100*time.Hour)
	if err := cache.Sweep(90 * time.Minute); err != nil {
		t.Fatal(err)
	}
	expect("after the sweep", c, young, foreign)

	// Using a copy keeps it.
	use(c, 80*time.Minute)
	if err := service.FetchTo(t.Context(), "assets/"+c, filepath.Join(t.TempDir(), "dst")); err != nil {
		t.Fatal(err)
	}
	if err := cache.Sweep(time.Minute); err != nil {
		t.Fatal(err)
	}
	expect("after another use", c, young, foreign)
}

func TestAssetLargerThanTheCacheIsStillServed(t *testing.T) {
	s := newStore(t)
	service, cache, dir := s.service(t, 10)
	key := upload(t, service, bytes.Repeat([]byte("x"), 1000), "video/mp4")
	if err := service.FetchTo(t.Context(), key, filepath.Join(t.TempDir(), "dst")); err != nil {
		t.Fatal(err)
	}
	if err := cache.Sweep(time.Hour); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); len(got) != 0 {
		t.Errorf("the cache holds %v", got)
	}
}

func TestSweepNeverTakesAFileFromAJob(t *testing.T) {
	s := newStore(t)
	service, cache, _ := s.service(t, maxBytes)
	want := []byte("contested")
	key := upload(t, service, want, "video/mp4")
	var jobs, sweeper sync.WaitGroup
	stop := make(chan struct{})
	sweeper.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				if err := cache.Sweep(0); err != nil {
					t.Error(err)
				}
			}
		}
	})
	dir := t.TempDir()
	for worker := range 4 {
		jobs.Go(func() {
			for i := range 25 {
				dst := filepath.Join(dir, fmt.Sprintf("%d-%d", worker, i))
				if err := service.FetchTo(t.Context(), key, dst); err != nil {
					t.Error(err)
					return
				}
				if got, err := os.ReadFile(dst); err != nil || !bytes.Equal(got, want) {
					t.Errorf("the job reads %q, %v", got, err)
				}
			}
		})
	}
	jobs.Wait()
	close(stop)
	sweeper.Wait()
}

func TestCopiesOfAnotherBootAreDropped(t *testing.T) {
	s := newStore(t)
	service, _, dir := s.service(t, maxBytes)
	key := upload(t, service, []byte("before the power failed"), "video/mp4")
	if err := service.FetchTo(t.Context(), key, filepath.Join(t.TempDir(), "dst")); err != nil {
		t.Fatal(err)
	}
	if _, err := asset.NewCache(dir, maxBytes); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("after a restart of the process the cache holds %v", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "boot-id"), []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := asset.NewCache(dir, maxBytes); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); len(got) != 0 {
		t.Errorf("after a restart of the machine the cache holds %v", got)
	}
}

// waitForWaiters returns when n callers share the download of key.
func waitForWaiters(t *testing.T, s *asset.Service, key string, n int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); s.Waiters(key) != n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the callers did not come together")
		}
	}
}
