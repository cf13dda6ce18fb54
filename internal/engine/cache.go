package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"cutroom/internal/disk"
)

// PartCache keeps intermediate results between renders. A key stands for one
// content for ever: whoever puts the same key again puts the same bytes.
// Implementations are safe for concurrent use.
//
// A cache that fails costs time and nothing else: the engine logs the error and
// makes the part anew.
type PartCache interface {
	// Get makes the part appear at dst, which does not exist yet, and reports
	// whether it was there. The file at dst may be shared with the cache: it is
	// never written to, only read and removed.
	Get(ctx context.Context, scope, key, dst string) (bool, error)
	// Put keeps a copy of the finished file src, which is not modified
	// afterwards. It may be linked instead of copied.
	Put(ctx context.Context, scope, key, src string) error
}

// DirCacheConfig says where and how much a DirCache keeps.
type DirCacheConfig struct {
	Dir      string        // created when missing
	MaxBytes int64         // 0 = no limit; the least recently used parts go first
	TTL      time.Duration // since the last use; 0 = for ever. Applied by Sweep.
	Now      func() time.Time
}

// DirCache is a PartCache in a local folder: one folder per scope, one file per
// part, hard links in and out where the file system allows. A part's
// modification time is its last use.
//
// A part that a running job still links to survives eviction: deleting it would
// free nothing. Several processes may share a folder; each then applies the
// size limit to what it knows.
type DirCache struct {
	cfg DirCacheConfig

	mu    sync.Mutex // guards size, and makes evictions one at a time
	size  int64
	alive sync.RWMutex // held for writing while scopes' folders go
}

// NewDirCache opens the folder and adds up what is there.
func NewDirCache(cfg DirCacheConfig) (*DirCache, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if err := os.MkdirAll(cfg.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("part cache: %w", err)
	}
	c := &DirCache{cfg: cfg}
	entries, err := c.entries()
	if err != nil {
		return nil, fmt.Errorf("part cache: %w", err)
	}
	for _, e := range entries {
		c.size += e.size
	}
	return c, nil
}

const tempSuffix = ".tmp"

// Get implements PartCache.
func (c *DirCache) Get(ctx context.Context, scope, key, dst string) (bool, error) {
	c.alive.RLock()
	defer c.alive.RUnlock()
	path, err := c.path(scope, key)
	if err != nil {
		return false, err
	}
	err = disk.Link(ctx, path, dst)
	if errors.Is(err, fs.ErrNotExist) {
		if _, statErr := os.Lstat(filepath.Dir(dst)); statErr != nil {
			return false, fmt.Errorf("part cache: %w", statErr) // it is dst's folder that is missing
		}
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("part cache: get: %w", err)
	}
	now := c.cfg.Now()
	if err := os.Chtimes(path, now, now); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return true, fmt.Errorf("part cache: note the use: %w", err)
	}
	return true, nil
}

// Put implements PartCache. When it returns the part is on the disk, not only
// in the kernel's memory.
func (c *DirCache) Put(ctx context.Context, scope, key, src string) error {
	c.alive.RLock()
	defer c.alive.RUnlock()
	path, err := c.path(scope, key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("part cache: %w", err)
	}
	temp, err := tempName(path)
	if err != nil {
		return err
	}
	defer os.Remove(temp)
	if err := disk.Link(ctx, src, temp); err != nil {
		return fmt.Errorf("part cache: put: %w", err)
	}
	size, err := syncFile(temp)
	if err != nil {
		return fmt.Errorf("part cache: put: %w", err)
	}
	now := c.cfg.Now()
	if err := os.Chtimes(temp, now, now); err != nil {
		return fmt.Errorf("part cache: put: %w", err)
	}
	replaced := int64(0)
	if st, err := os.Stat(path); err == nil {
		replaced = st.Size()
	}
	// Renaming one link of a file onto another link of the same file does
	// nothing; the deferred Remove then drops the spare name.
	if err := os.Rename(temp, path); err != nil {
		return fmt.Errorf("part cache: put: %w", err)
	}
	return c.grow(size - replaced)
}

// grow accounts for n more bytes and evicts when the limit is passed.
func (c *DirCache) grow(n int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.size += n
	if c.cfg.MaxBytes <= 0 || c.size <= c.cfg.MaxBytes {
		return nil
	}
	entries, err := c.entries()
	if err != nil {
		return fmt.Errorf("part cache: evict: %w", err)
	}
	slices.SortFunc(entries, func(a, b cacheEntry) int { return a.used.Compare(b.used) })
	c.size = 0
	for _, e := range entries {
		c.size += e.size
	}
	// A tenth below the limit, so that not every Put has to look again.
	for _, e := range entries {
		if c.size <= c.cfg.MaxBytes-c.cfg.MaxBytes/10 {
			break
		}
		if e.inUse {
			continue
		}
		if err := os.Remove(e.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("part cache: evict: %w", err)
		}
		c.size -= e.size
	}
	return nil
}

// Sweep removes what was not used for the TTL and is not in use. It returns how
// many parts went.
func (c *DirCache) Sweep(ctx context.Context) (removed int, err error) {
	removed, err = c.sweepParts(ctx)
	if err != nil {
		return removed, err
	}
	c.alive.Lock() // a Put must not find its folder gone
	defer c.alive.Unlock()
	scopes, err := os.ReadDir(c.cfg.Dir)
	if err != nil {
		return removed, fmt.Errorf("part cache: sweep: %w", err)
	}
	for _, s := range scopes {
		os.Remove(filepath.Join(c.cfg.Dir, s.Name())) // succeeds for empty folders alone, which is what is wanted
	}
	return removed, nil
}

func (c *DirCache) sweepParts(ctx context.Context) (removed int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entries, err := c.entries()
	if err != nil {
		return 0, fmt.Errorf("part cache: sweep: %w", err)
	}
	c.size = 0
	for _, e := range entries {
		if ctx.Err() != nil {
			return removed, context.Cause(ctx)
		}
		if c.cfg.TTL > 0 && !e.inUse && c.cfg.Now().Sub(e.used) > c.cfg.TTL {
			if err := os.Remove(e.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return removed, fmt.Errorf("part cache: sweep: %w", err)
			}
			removed++
			continue
		}
		c.size += e.size
	}
	return removed, nil
}

// EraseScope removes everything kept for scope. Parts put later by a render
// that still runs are kept again; end the scope's renders first.
func (c *DirCache) EraseScope(_ context.Context, scope string) error {
	c.alive.Lock()
	defer c.alive.Unlock()
	if err := os.RemoveAll(c.scopeDir(scope)); err != nil {
		return fmt.Errorf("part cache: erase: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	entries, err := c.entries()
	if err != nil {
		return fmt.Errorf("part cache: erase: %w", err)
	}
	c.size = 0
	for _, e := range entries {
		c.size += e.size
	}
	return nil
}

// SizeBytes is how much the cache holds, as far as this process knows.
func (c *DirCache) SizeBytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.size
}

// scopeDir hides the scope behind a hash: it may hold anything, and the disk
// need not list user ids.
func (c *DirCache) scopeDir(scope string) string {
	sum := sha256.Sum256([]byte(scope))
	return filepath.Join(c.cfg.Dir, hex.EncodeToString(sum[:16]))
}

func (c *DirCache) path(scope, key string) (string, error) {
	if !plainKey(key) {
		return "", fmt.Errorf("part cache: malformed key %q", key)
	}
	return filepath.Join(c.scopeDir(scope), key), nil
}

// plainKey accepts what the engine makes: lower-case letters, digits, dashes and
// single dots inside.
func plainKey(key string) bool {
	if key == "" || len(key) > 200 || key[0] == '.' || strings.Contains(key, "..") || strings.HasSuffix(key, tempSuffix) {
		return false
	}
	return strings.Trim(key, "abcdefghijklmnopqrstuvwxyz0123456789.-") == ""
}

type cacheEntry struct {
	path  string
	size  int64
	used  time.Time
	inUse bool // another name links to the file
}

// entries lists the parts. Old temporary files are removed on the way.
func (c *DirCache) entries() ([]cacheEntry, error) {
	var all []cacheEntry
	err := filepath.WalkDir(c.cfg.Dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil || d.IsDir() {
			return err
		}
		st, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, tempSuffix) { // being put, or left by a process that died doing so
			if c.cfg.Now().Sub(st.ModTime()) > time.Hour {
				os.Remove(path) // fails when the owner was faster, which is as well
			}
			return nil
		}
		e := cacheEntry{path: path, size: st.Size(), used: st.ModTime()}
		if sys, ok := st.Sys().(*syscall.Stat_t); ok {
			e.inUse = sys.Nlink > 1
		}
		all = append(all, e)
		return nil
	})
	return all, err
}

func syncFile(path string) (sizeBytes int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), f.Sync()
}

// tempName is a name beside path that nobody else uses.
func tempName(path string) (string, error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*"+tempSuffix)
	if err != nil {
		return "", fmt.Errorf("part cache: %w", err)
	}
	f.Close()
	return f.Name(), os.Remove(f.Name())
}
