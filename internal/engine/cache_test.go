package engine_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cutroom/internal/engine"
)

// clock is a time that moves when told.
type clock struct{ now time.Time }

func (c *clock) time() time.Time { return c.now }

func newCache(t *testing.T, maxBytes int64, ttl time.Duration) (*engine.DirCache, *clock, string) {
	t.Helper()
	c := &clock{time.Now().Add(-24 * time.Hour)}
	dir := filepath.Join(t.TempDir(), "cache")
	cache, err := engine.NewDirCache(engine.DirCacheConfig{Dir: dir, MaxBytes: maxBytes, TTL: ttl, Now: c.time})
	if err != nil {
		t.Fatal(err)
	}
	return cache, c, dir
}

func put(t *testing.T, c *engine.DirCache, scope, key, content string) {
	t.Helper()
	src := filepath.Join(t.TempDir(), "src")
	if err := os.WriteFile(src, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Put(context.Background(), scope, key, src); err != nil {
		t.Fatal(err)
	}
	// As a job does at its end: only the cache keeps the file.
	if err := os.Remove(src); err != nil {
		t.Fatal(err)
	}
}

// got returns a part's content, "" when the cache does not have it.
func got(t *testing.T, c *engine.DirCache, scope, key string) string {
	t.Helper()
	dst := filepath.Join(t.TempDir(), "dst")
	found, err := c.Get(context.Background(), scope, key, dst)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(dst)
	if found != (err == nil) {
		t.Fatalf("found %v, but reading says %v", found, err)
	}
	if found {
		if err := os.Remove(dst); err != nil {
			t.Fatal(err)
		}
	}
	return string(data)
}

func TestDirCacheKeepsAndFinds(t *testing.T) {
	c, _, dir := newCache(t, 0, 0)
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
	if n := c.SizeBytes(); n != 10 {
		t.Errorf("size %d", n)
	}
	for _, key := range []string{"", "../x", "a/b", ".hidden", "A", "x.tmp", strings.Repeat("a", 300)} {
		if err := c.Put(context.Background(), "ann", key, dir); err == nil {
			t.Errorf("key %q was accepted", key)
		}
	}
	again, err := engine.NewDirCache(engine.DirCacheConfig{Dir: dir})
	if err != nil || again.SizeBytes() != 10 || got(t, again, "ann", "a.mp4") != "hello" {
		t.Errorf("after a restart: %d bytes, %v", again.SizeBytes(), err)
	}
}

func TestDirCacheDropsTheLeastRecentlyUsed(t *testing.T) {
	c, now, _ := newCache(t, 100, 0)
	for i := range 4 {
		put(t, c, "ann", fmt.Sprintf("p%d", i), strings.Repeat("x", 24))
		now.now = now.now.Add(time.Minute)
	}
	got(t, c, "ann", "p0") // used again
	now.now = now.now.Add(time.Minute)
	put(t, c, "ann", "p4", strings.Repeat("x", 24))
	for key, want := range map[string]bool{"p0": true, "p1": false, "p2": false, "p3": true, "p4": true} {
		if has := got(t, c, "ann", key) != ""; has != want {
			t.Errorf("%s: there %v, want %v", key, has, want)
		}
	}
	if c.SizeBytes() > 100 {
		t.Errorf("%d bytes", c.SizeBytes())
	}
}

func TestDirCacheSparesWhatIsInUse(t *testing.T) {
	c, now, _ := newCache(t, 50, time.Hour)
	put(t, c, "ann", "used", strings.Repeat("x", 30))
	dst := filepath.Join(t.TempDir(), "job")
	if found, err := c.Get(context.Background(), "ann", "used", dst); !found || err != nil {
		t.Fatal(found, err)
	}
	now.now = now.now.Add(2 * time.Hour)
	put(t, c, "ann", "other", strings.Repeat("y", 30)) // over the limit
	if n, err := c.Sweep(context.Background()); n != 0 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
	if got(t, c, "ann", "used") == "" {
		t.Error("a part in use was evicted")
	}
	if err := os.Remove(dst); err != nil {
		t.Fatal(err)
	}
	now.now = now.now.Add(2 * time.Hour)
	if n, err := c.Sweep(context.Background()); n == 0 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
	if got(t, c, "ann", "used") != "" {
		t.Error("an old part survived")
	}
}

func TestDirCacheErasesAScope(t *testing.T) {
	c, _, dir := newCache(t, 0, 0)
	put(t, c, "ann", "a", "1")
	put(t, c, "bob", "a", "2")
	if err := c.EraseScope(context.Background(), "ann"); err != nil {
		t.Fatal(err)
	}
	if got(t, c, "ann", "a") != "" || got(t, c, "bob", "a") != "2" || c.SizeBytes() != 1 {
		t.Error("the wrong parts went")
	}
	if err := c.EraseScope(context.Background(), "nobody"); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestDirCacheIsSafeForConcurrentUse(t *testing.T) {
	c, _, _ := newCache(t, 2000, time.Hour)
	dir := t.TempDir()
	var group sync.WaitGroup
	for w := range 8 {
		group.Go(func() {
			for i := range 40 {
				key, src := fmt.Sprintf("k%d", i%10), filepath.Join(dir, fmt.Sprintf("s%d-%d", w, i))
				if err := os.WriteFile(src, []byte(strings.Repeat(key, 100)), 0o600); err != nil {
					t.Error(err)
					return
				}
				if err := c.Put(context.Background(), "ann", key, src); err != nil {
					t.Error(err)
				}
				dst := src + ".out"
				if found, err := c.Get(context.Background(), "ann", key, dst); err != nil {
					t.Error(err)
				} else if found {
					if data, err := os.ReadFile(dst); err != nil || string(data) != strings.Repeat(key, 100) {
						t.Errorf("%s holds %.20q, %v", key, data, err)
					}
				}
				if i%7 == 0 {
					if _, err := c.Sweep(context.Background()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	group.Wait()
}
