package asset

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"cutroom/internal/objectstore"
)

// maxDownloads bounds the objects that are fetched from the bucket at a time.
const maxDownloads = 4

// Cache keeps verified copies of assets on the local disk. Jobs receive hard
// links, so removing a copy never takes a file from under a job.
type Cache struct {
	dir      string
	maxBytes int64
	slots    chan struct{}

	mu      sync.Mutex
	fetches map[Key]chan struct{} // closed when the fetch under way has ended
}

// NewCache returns the cache in dir, which must exist. Sweep keeps it under
// maxBytes.
func NewCache(dir string, maxBytes int64) (*Cache, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("asset cache: %w", err)
	}
	return &Cache{dir: dir, maxBytes: maxBytes, slots: make(chan struct{}, maxDownloads), fetches: map[Key]chan struct{}{}}, nil
}

func (c *Cache) path(k Key) string { return filepath.Join(c.dir, k.SHA256+"."+k.Ext) }

// fetch links the asset to dst, downloading it first when it is not here. Jobs
// that want the same asset share one download.
func (c *Cache) fetch(ctx context.Context, from objectstore.Store, k Key, dst string) error {
	for {
		if c.link(k, dst) {
			return nil
		}
		c.mu.Lock()
		pending, busy := c.fetches[k]
		if !busy {
			pending = make(chan struct{})
			c.fetches[k] = pending
		}
		c.mu.Unlock()
		if busy {
			select {
			case <-pending:
				continue // look again: the fetch may have failed for its own reasons
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		err := c.download(ctx, from, k, dst)
		c.mu.Lock()
		delete(c.fetches, k)
		c.mu.Unlock()
		close(pending)
		return err
	}
}

// link gives the caller the cached copy and marks it used.
func (c *Cache) link(k Key, dst string) bool {
	if err := os.Link(c.path(k), dst); err != nil {
		return false
	}
	now := time.Now()
	// The time of use only orders evictions.
	_ = os.Chtimes(c.path(k), now, now)
	return true
}

// download fetches, verifies, keeps a copy and links it to dst.
func (c *Cache) download(ctx context.Context, from objectstore.Store, k Key, dst string) error {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	part := filepath.Join(c.dir, fmt.Sprintf("%s.%s.%d.part", k.SHA256, k.Ext, time.Now().UnixNano()))
	defer os.Remove(part)
	if err := from.Fetch(ctx, k.String(), part); err != nil {
		return fmt.Errorf("fetch asset: %w", err)
	}
	if err := verify(part, k.SHA256); err != nil {
		return err
	}
	if err := os.Link(part, dst); err != nil {
		return fmt.Errorf("hand over asset: %w", err)
	}
	if err := os.Rename(part, c.path(k)); err != nil {
		return fmt.Errorf("keep asset: %w", err)
	}
	return nil
}

func verify(path, want string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return fmt.Errorf("verify asset: %w", err)
	}
	if hex.EncodeToString(h.Sum(nil)) != want {
		return ErrCorrupt
	}
	return nil
}

// Sweep removes copies unused for longer than ttl, then the least recently used
// ones beyond the size limit, and downloads that a crash cut off.
func (c *Cache) Sweep(ttl time.Duration) error {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return fmt.Errorf("sweep asset cache: %w", err)
	}
	type copyFile struct {
		path string
		size int64
		used time.Time
	}
	var kept []copyFile
	var total int64
	var errs []error
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue // gone meanwhile
		}
		f := copyFile{filepath.Join(c.dir, e.Name()), info.Size(), info.ModTime()}
		if age := time.Since(f.used); age > ttl || (strings.HasSuffix(e.Name(), ".part") && age > time.Hour) {
			errs = append(errs, os.Remove(f.path))
			continue
		}
		kept, total = append(kept, f), total+f.size
	}
	slices.SortFunc(kept, func(a, b copyFile) int { return cmp.Compare(a.used.UnixNano(), b.used.UnixNano()) })
	for _, f := range kept {
		if total <= c.maxBytes {
			break
		}
		errs = append(errs, os.Remove(f.path))
		total -= f.size
	}
	return errors.Join(errs...)
}
