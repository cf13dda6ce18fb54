package asset

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// partSuffix ends the names of downloads under way.
	partSuffix = ".part"
	// deadPart is how long a download under way may stand still before it is
	// taken for what a killed process left.
	deadPart = time.Hour
)

// Sweep removes copies unused for longer than ttl, then the least recently used
// ones beyond the size limit, and downloads that a crash cut off.
func (c *Cache) Sweep(ttl time.Duration) error {
	files, err := c.list()
	if err != nil {
		return fmt.Errorf("sweep asset cache: %w", err)
	}
	var errs []error
	for _, f := range files {
		if age := time.Since(f.used); (f.verified && age > ttl) || (!f.verified && age > deadPart) {
			errs = append(errs, remove(f.path))
		}
	}
	if err := errors.Join(append(errs, c.evict(Key{}))...); err != nil {
		return fmt.Errorf("sweep asset cache: %w", err)
	}
	return nil
}

// evict removes the least recently used copies until the rest fits, but not
// the one of keep, which somebody is about to take.
func (c *Cache) evict(keep Key) error {
	files, err := c.list()
	if err != nil {
		return err
	}
	var total int64
	for _, f := range files {
		total += f.size
	}
	for _, f := range files {
		if total <= c.maxBytes {
			break
		}
		if !f.verified || f.path == c.path(keep) {
			continue
		}
		if err := remove(f.path); err != nil {
			return err
		}
		total -= f.size
	}
	return nil
}

// cached is a file of the cache.
type cached struct {
	path     string
	size     int64
	used     time.Time // last
	verified bool      // a copy; else a download under way
}

// list returns the copies and downloads, the least recently used first.
// Files of other names are not ours to sweep.
func (c *Cache) list() ([]cached, error) {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return nil, err
	}
	var files []cached
	for _, e := range entries {
		_, err := parseFileName(e.Name())
		verified := err == nil
		if !verified && !strings.HasSuffix(e.Name(), partSuffix) {
			continue
		}
		st, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // gone meanwhile
		}
		if err != nil {
			return nil, err
		}
		files = append(files, cached{path: filepath.Join(c.dir, e.Name()), size: st.Size(), used: st.ModTime(), verified: verified})
	}
	slices.SortFunc(files, func(a, b cached) int {
		return cmp.Or(a.used.Compare(b.used), strings.Compare(a.path, b.path))
	})
	return files, nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// forgetOtherBoot removes the copies unless they were made since the machine
// started. They are not flushed to disk one by one, so a power failure may
// have torn them; a process that dies tears none.
func (c *Cache) forgetOtherBoot() error {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		boot = []byte(rand.Text()) // unknown: trust nothing
	}
	marker := filepath.Join(c.dir, "boot-id")
	if known, err := os.ReadFile(marker); err == nil && string(known) == string(boot) {
		return nil
	}
	files, err := c.list()
	if err != nil {
		return err
	}
	for _, f := range files {
		if f.verified {
			if err := remove(f.path); err != nil {
				return err
			}
		}
	}
	return os.WriteFile(marker, boot, 0o640)
}
