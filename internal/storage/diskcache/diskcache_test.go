// The cache: what it drops and spares, erasure of a scope, files of dead processes, and callers that share a load.

package diskcache_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cutroom/internal/storage/diskcache"
)

func newCache(t *testing.T, cfg diskcache.Config) (*diskcache.Cache, string) {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = filepath.Join(t.TempDir(), "cache")
	}
	c, err := diskcache.New(cfg)
	must(t, err)
	return c, cfg.Dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, c *diskcache.Cache, scope, key, content string) {
	t.Helper()
	src := filepath.Join(t.TempDir(), "src")
	write(t, src, content)
	must(t, c.Put(t.Context(), scope, key, src))
	// As a job does at its end: only the cache keeps the file.
	must(t, os.Remove(src))
}

func write(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(content), 0o600))
}

// got returns a file's content, "" when the cache does not have it.
func got(t *testing.T, c *diskcache.Cache, scope, key string) string {
	t.Helper()
	dst := filepath.Join(t.TempDir(), "dst")
	found, err := c.Get(t.Context(), scope, key, dst)
	must(t, err)
	data, err := os.ReadFile(dst)
	if found != (err == nil) {
		t.Fatalf("found %v, but reading says %v", found, err)
	}
	if found {
		must(t, os.Remove(dst))
	}
	return string(data)
}

// files maps the names below dir, without their folders, to their paths.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all[d.Name()] = path
		}
		return err
	})
	must(t, err)
	return all
}

// use makes a file look as if it had been used that long ago.
func use(t *testing.T, dir, name string, ago time.Duration) {
	t.Helper()
	at := time.Now().Add(-ago)
	must(t, os.Chtimes(files(t, dir)[name], at, at))
}

func expect(t *testing.T, when, dir string, want ...string) {
	t.Helper()
	var names []string
	for name := range files(t, dir) {
		names = append(names, name)
	}
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("%s the cache holds %v, want %v", when, names, want)
	}
}

func TestKeepsAndFinds(t *testing.T) {
	c, dir := newCache(t, diskcache.Config{})
	if g := got(t, c, "ann", "a.mp4"); g != "" {
		t.Errorf("an empty cache has %q", g)
	}
	put(t, c, "ann", "a.mp4", "hello")
	put(t, c, "ann", "a.mp4", "hello")
	put(t, c, "bob/../ann", "a.mp4", "bob's")
	if g := got(t, c, "ann", "a.mp4"); g != "hello" {
		t.Errorf("got %q", g)
	}
	if g := got(t, c, "bob/../ann", "a.mp4"); g != "bob's" {
		t.Errorf("got %q", g)
	}
	if found, err := c.Get(t.Context(), "ann", "a.mp4", filepath.Join(dir, "no", "folder")); found || err == nil {
		t.Errorf("into a missing folder: %v, %v", found, err)
	}
	// The names on the disk are a promise to the cache that an upgrade finds.
	stored := filepath.Join(dir, "49915e0d7d4b402e3017d010bc1c0e83", "a.mp4")
	if data, err := os.ReadFile(stored); err != nil || string(data) != "hello" {
		t.Errorf("%s: %q, %v: have %v", stored, data, err, files(t, dir))
	}
	again, _ := newCache(t, diskcache.Config{Dir: dir})
	if got(t, again, "ann", "a.mp4") != "hello" {
		t.Error("lost by a restart")
	}
}

func TestDropsTheLeastRecentlyUsed(t *testing.T) {
	c, dir := newCache(t, diskcache.Config{MaxBytes: 100})
	for i := range 4 {
		key := fmt.Sprintf("p%d", i)
		put(t, c, "ann", key, strings.Repeat("x", 24))
		use(t, dir, key, time.Duration(9-i)*time.Hour)
	}
	got(t, c, "ann", "p0") // used again
	put(t, c, "ann", "p4", strings.Repeat("x", 24))
	expect(t, "when it is full", dir, "p0", "p3", "p4")
	again, _ := newCache(t, diskcache.Config{Dir: dir, MaxBytes: 50})
	expect(t, "under a lower limit", dir, "p4")
	use(t, dir, "p4", 2*time.Hour)
	must(t, again.Sweep(time.Hour))
	expect(t, "after a sweep", dir)
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("empty folders are left: %v, %v", entries, err)
	}
}

func TestSparesWhatIsInUse(t *testing.T) {
	c, dir := newCache(t, diskcache.Config{MaxBytes: 50})
	put(t, c, "ann", "used", strings.Repeat("x", 30))
	dst := filepath.Join(t.TempDir(), "job")
	if found, err := c.Get(t.Context(), "ann", "used", dst); !found || err != nil {
		t.Fatal(found, err)
	}
	use(t, dir, "used", 2*time.Hour)
	put(t, c, "ann", "other", strings.Repeat("y", 30)) // over the limit
	expect(t, "over the limit", dir, "other", "used")
	if err := c.Sweep(time.Hour); err != nil {
		t.Error(err)
	}
	expect(t, "while a job runs", dir, "used")
	must(t, os.Remove(dst))
	if err := c.Sweep(time.Hour); err != nil {
		t.Error(err)
	}
	expect(t, "when nobody uses it", dir)
}

func TestErasesAScope(t *testing.T) {
	c, dir := newCache(t, diskcache.Config{})
	put(t, c, "ann", "a", "1")
	put(t, c, "bob", "a", "2")
	for _, scope := range []string{"ann", "nobody"} {
		if err := c.EraseScope(t.Context(), scope); err != nil {
			t.Error(err)
		}
	}
	if err := c.EraseScope(t.Context(), ""); err == nil {
		t.Error("everybody's files may be erased at once")
	}
	if got(t, c, "ann", "a") != "" || got(t, c, "bob", "a") != "2" {
		t.Error("the wrong files went")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestSweepsTemporaryFilesOfDeadProcesses(t *testing.T) {
	c, dir := newCache(t, diskcache.Config{})
	for _, name := range []string{"old.part", "young.part", "old.tmp"} {
		write(t, filepath.Join(dir, name), "")
		if strings.HasPrefix(name, "old") {
			use(t, dir, name, 2*time.Hour)
		}
	}
	must(t, c.Sweep(90*time.Minute))
	expect(t, "after a sweep", dir, "young.part")
}

func TestFilesOfAnotherBootAreDropped(t *testing.T) {
	cfg := diskcache.Config{Volatile: true}
	c, dir := newCache(t, cfg)
	cfg.Dir = dir
	put(t, c, "", "a", "before the power failed")
	newCache(t, cfg)
	expect(t, "after a restart of the process", dir, "a", "boot-id")
	write(t, filepath.Join(dir, "boot-id"), "another")
	newCache(t, cfg)
	expect(t, "after a restart of the machine", dir, "boot-id")
}

// Jobs put, get and load files of a cache that is a little too small for them, while others sweep it.
func TestIsSafeForConcurrentUse(t *testing.T) {
	c, _ := newCache(t, diskcache.Config{MaxBytes: 1800})
	dir := t.TempDir()
	load := func(_ context.Context, path string) error {
		return os.WriteFile(path, []byte(strings.Repeat("k0", 100)), 0o600)
	}
	var jobs, sweeper sync.WaitGroup
	stop := make(chan struct{})
	sweeper.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				if err := c.Sweep(20 * time.Millisecond); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for w := range 8 {
		jobs.Go(func() {
			for i := range 40 {
				src := filepath.Join(dir, fmt.Sprintf("%d-%d", w, i))
				key, found := fmt.Sprintf("k%d", i%10), true
				err := os.WriteFile(src, []byte(strings.Repeat(key, 100)), 0o600)
				if err == nil && i%10 == 0 {
					// Files that a job still links are never evicted, so the loaded file goes first, and with so little
					// room Load may give up.
					for range 20 {
						err = c.Load(t.Context(), key, src+".out", load)
						if err == nil || !strings.Contains(err.Error(), "evicted") {
							break
						}
					}
				} else if err == nil {
					if err = c.Put(t.Context(), "ann", key, src); err == nil {
						found, err = c.Get(t.Context(), "ann", key, src+".out")
					}
				}
				if err != nil {
					t.Error(err)
					return
				}
				if data, err := os.ReadFile(src + ".out"); found && (err != nil || string(data) != strings.Repeat(key, 100)) {
					t.Errorf("%s holds %.20q, %v", key, data, err)
				}
				os.Remove(src) // only the cache keeps the file
				os.Remove(src + ".out")
			}
		})
	}
	jobs.Wait()
	close(stop)
	sweeper.Wait()
}

// source is a Loader that tells when it is asked, and answers when it may.
type source struct {
	asked chan struct{}
	gate  chan struct{}
	loads int // read once the loads have ended
}

func newSource() *source {
	return &source{asked: make(chan struct{}, 100), gate: make(chan struct{})}
}

func (s *source) load(ctx context.Context, path string) error {
	s.loads++ // one at a time
	s.asked <- struct{}{}
	select {
	case <-s.gate:
		return os.WriteFile(path, []byte("content"), 0o600)
	case <-ctx.Done():
		return errors.Join(os.WriteFile(path, []byte("cont"), 0o600), ctx.Err())
	}
}

func TestCallersShareOneLoad(t *testing.T) {
	c, dir := newCache(t, diskcache.Config{Volatile: true})
	s := newSource()
	to := t.TempDir()
	first, giveUp := context.WithCancel(t.Context())
	firstErr := make(chan error, 1)
	go func() { firstErr <- c.Load(first, "key", filepath.Join(to, "first"), s.load) }()
	<-s.asked
	var others sync.WaitGroup
	for i := range 8 {
		others.Go(func() {
			dst := filepath.Join(to, fmt.Sprint(i))
			if err := c.Load(t.Context(), "key", dst, s.load); err != nil {
				t.Error(err)
			}
			if st, err := os.Stat(dst); err != nil || st.Mode().Perm()&0o222 != 0 {
				t.Errorf("the shared file may be written to: %v, %v", st, err)
			}
		})
	}
	giveUp()
	if err := <-firstErr; !errors.Is(err, context.Canceled) {
		t.Errorf("the first caller got %v", err)
	}
	<-s.asked // by one of the others
	close(s.gate)
	others.Wait()
	size, err := c.Size(t.Context(), "key", s.load)
	if size != int64(len("content")) || err != nil || s.loads != 2 {
		t.Errorf("%d bytes, %v after %d loads", size, err, s.loads)
	}
	expect(t, "then", dir, "key", "boot-id")
}

func TestAFailedLoadLeavesNothing(t *testing.T) {
	c, dir := newCache(t, diskcache.Config{})
	ctx, giveUp := context.WithCancel(t.Context())
	_, err := c.Size(ctx, "key", func(ctx context.Context, path string) error {
		giveUp()
		<-ctx.Done()
		return errors.Join(os.WriteFile(path, []byte("cont"), 0o600), ctx.Err())
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Size = %v", err)
	}
	expect(t, "after a load that was broken off", dir)
	_, err = c.Size(t.Context(), "key", func(context.Context, string) error { panic("boom") })
	if err == nil || !strings.Contains(err.Error(), "panic: boom") {
		t.Errorf("Size = %v, want the panic", err)
	}
	expect(t, "after a panic", dir)
	s := newSource()
	close(s.gate)
	if err := c.Load(t.Context(), "key", filepath.Join(t.TempDir(), "dst"), s.load); err != nil {
		t.Errorf("a later caller: %v", err)
	}
}
