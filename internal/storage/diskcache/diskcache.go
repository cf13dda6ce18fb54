// Package diskcache keeps files that can be fetched or made again on the local disk, up to a size.
//
// A key is a file name, which always stands for the same content. Get and Put use hard links if the file system allows
// it, so a job keeps its files even if this or another process that shares the folder evicts them. A file's
// modification time is its last use, and a file under its final name is complete.
package diskcache

import (
	"cmp"
	"context"
	"crypto/rand"
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

	"golang.org/x/sync/singleflight"

	"cutroom/internal/storage/disk"
)

// Config sets where a Cache keeps its files and when it removes them.
type Config struct {
	Dir      string // created when missing
	MaxBytes int64  // 0 = no limit; evicts the least recently used files first
	// Volatile skips flushing files to the disk and drops files written before the machine last started, because a
	// power failure may have truncated them. A killed process leaves no such file.
	Volatile bool
}

// Cache is a folder of files. It is safe for concurrent use. Processes that share a folder each apply the limit to the
// files that they have listed.
type Cache struct {
	cfg   Config
	alive sync.RWMutex // held for writing while folders of scopes are removed

	mu   sync.Mutex // serializes removals
	size int64      // as of the last listing and every Put since; guarded by mu

	loads singleflight.Group // by path
}

// New opens the folder.
func New(cfg Config) (*Cache, error) {
	c := &Cache{cfg: cfg}
	err := os.MkdirAll(cfg.Dir, 0o750)
	if err == nil && cfg.Volatile {
		err = c.forgetOtherBoot()
	}
	if err == nil {
		err = c.trim("", time.Time{})
	}
	if err != nil {
		return nil, fmt.Errorf("file cache: %w", err)
	}
	return c, nil
}

// Get links or copies the file to dst, which must not exist, and reports whether the cache had it. The cache may share
// the file at dst, so callers may read or remove it but never write to it.
func (c *Cache) Get(ctx context.Context, scope, key, dst string) (bool, error) {
	c.alive.RLock()
	defer c.alive.RUnlock()
	path := c.path(scope, key)
	err := disk.Link(ctx, path, dst)
	if errors.Is(err, fs.ErrNotExist) {
		if _, statErr := os.Lstat(filepath.Dir(dst)); statErr != nil {
			return false, fmt.Errorf("file cache: %w", statErr) // dst's folder is missing
		}
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("file cache: get: %w", err)
	}
	now := time.Now()
	if err := os.Chtimes(path, now, now); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return true, fmt.Errorf("file cache: note the use: %w", err)
	}
	return true, nil
}

// Put stores the finished file src, by a link or a copy. The caller must not modify src afterwards.
func (c *Cache) Put(ctx context.Context, scope, key, src string) error {
	c.alive.RLock()
	defer c.alive.RUnlock()
	err := c.keep(c.path(scope, key), func(temp string) error {
		if err := disk.Link(ctx, src, temp); err != nil {
			return err
		}
		now := time.Now()
		return os.Chtimes(temp, now, now)
	})
	if err != nil {
		return fmt.Errorf("file cache: put: %w", err)
	}
	return nil
}

// keep calls fill to create the file under a temporary name, publishes it at path, and evicts others if the cache is
// full.
func (c *Cache) keep(path string, fill func(temp string) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	temp := path + "." + rand.Text() + ".tmp"
	defer os.Remove(temp)
	if err := fill(temp); err != nil {
		return err
	}
	if !c.cfg.Volatile {
		if err := disk.Sync(temp); err != nil {
			return err
		}
	}
	st, err := os.Stat(temp)
	if err != nil {
		return err
	}
	// Renaming one link of a file to another link of it does nothing; the deferred Remove then drops the spare name.
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	c.mu.Lock()
	c.size += st.Size()
	full := c.full()
	c.mu.Unlock()
	if full {
		// The file is there. If trim fails, the next Sweep fails too and reports the error.
		_ = c.trim(path, time.Time{})
	}
	return nil
}

// Sweep removes files unused for ttl, then the least recently used files beyond the limit, and temporary files of dead
// processes.
func (c *Cache) Sweep(ttl time.Duration) error {
	if err := errors.Join(c.trim("", time.Now().Add(-ttl)), c.removeEmptyScopes()); err != nil {
		return fmt.Errorf("file cache: sweep: %w", err)
	}
	return nil
}

func (c *Cache) removeEmptyScopes() error {
	c.alive.Lock() // the folder of a concurrent Put must not disappear
	defer c.alive.Unlock()
	entries, err := os.ReadDir(c.cfg.Dir)
	for _, e := range entries {
		if e.IsDir() {
			os.Remove(filepath.Join(c.cfg.Dir, e.Name())) // removes only empty folders, as intended
		}
	}
	return err
}

// EraseScope removes every file of scope. A running job may add new ones, so end the scope's jobs first.
func (c *Cache) EraseScope(_ context.Context, scope string) error {
	if scope == "" {
		return errors.New("file cache: erase: no scope") // "" would erase the shared files
	}
	c.alive.Lock()
	defer c.alive.Unlock()
	err := os.RemoveAll(c.folder(scope))
	if err == nil {
		err = c.trim("", time.Time{})
	}
	if err != nil {
		return fmt.Errorf("file cache: erase: %w", err)
	}
	return nil
}

// folder returns the folder of a scope's files; "" is the cache's own folder. Hashing allows any scope and keeps user
// ids off the disk.
func (c *Cache) folder(scope string) string {
	if scope == "" {
		return c.cfg.Dir
	}
	sum := sha256.Sum256([]byte(scope))
	return filepath.Join(c.cfg.Dir, hex.EncodeToString(sum[:16]))
}

func (c *Cache) path(scope, key string) string { return filepath.Join(c.folder(scope), key) }

// deadTemp is how long a temporary file may stay unmodified before Sweep assumes that its writer is dead.
const deadTemp = time.Hour

// isTemp reports whether a file is still being written.
func isTemp(name string) bool {
	return strings.HasSuffix(name, ".tmp") || strings.HasSuffix(name, ".part")
}

// file is a cached file.
type file struct {
	path   string
	size   int64
	used   time.Time // last use
	pinned bool      // not to be removed now
}

// files lists the cache, least recently used first. It removes temporary files of dead processes.
func (c *Cache) files() ([]file, error) {
	var all []file
	err := filepath.WalkDir(c.cfg.Dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed in the meantime
		}
		if err != nil || d.IsDir() || d.Name() == bootMarker {
			return err
		}
		st, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		temp := isTemp(path)
		if temp && time.Since(st.ModTime()) > deadTemp {
			os.Remove(path) // may fail if the owner removed it first
			return nil
		}
		sys, ok := st.Sys().(*syscall.Stat_t)
		linked := ok && sys.Nlink > 1 // by a running job, so that its removal would free nothing
		all = append(all, file{path: path, size: st.Size(), used: st.ModTime(), pinned: temp || linked})
		return nil
	})
	slices.SortFunc(all, func(a, b file) int { return cmp.Or(a.used.Compare(b.used), strings.Compare(a.path, b.path)) })
	return all, err
}

// trim adds up the sizes and removes the files that were not used since expired, and the least recently used files
// beyond the limit, except keep, which the caller is about to use.
func (c *Cache) trim(keep string, expired time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	files, err := c.files()
	if err != nil {
		return err
	}
	c.size = 0
	for _, f := range files {
		c.size += f.size
	}
	full := c.full()
	for _, f := range files {
		// Trim to a tenth below the limit, so that not every Put lists the folder.
		if !f.used.Before(expired) && !(full && c.size > c.cfg.MaxBytes-c.cfg.MaxBytes/10) {
			break
		}
		if f.pinned || f.path == keep {
			continue
		}
		if err := disk.Remove(f.path); err != nil {
			return err
		}
		c.size -= f.size
	}
	return nil
}

func (c *Cache) full() bool { return c.cfg.MaxBytes > 0 && c.size > c.cfg.MaxBytes }

// bootMarker is the file that records the boot during which a volatile cache was filled.
const bootMarker = "boot-id"

// forgetOtherBoot removes files that were put before the machine last started.
func (c *Cache) forgetOtherBoot() error {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		boot = []byte(rand.Text()) // boot id unknown: trust no file
	}
	marker := filepath.Join(c.cfg.Dir, bootMarker)
	if known, err := os.ReadFile(marker); err == nil && string(known) == string(boot) {
		return nil
	}
	files, err := c.files()
	if err != nil {
		return err
	}
	for _, f := range files {
		if !isTemp(f.path) {
			if err := disk.Remove(f.path); err != nil {
				return err
			}
		}
	}
	return os.WriteFile(marker, boot, 0o640)
}
