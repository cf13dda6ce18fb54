package diskcache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"

	"cutroom/internal/base/rescue"
	"cutroom/internal/storage/disk"
)

// Loader creates the file of a key at a path that does not exist yet.
type Loader func(ctx context.Context, path string) error

// Load is Get without a scope, but loads a missing file first. The file at dst is read-only. Callers for the same key
// share one load and its error. If the context of the caller that started the load ends, another caller starts it
// again.
func (c *Cache) Load(ctx context.Context, key, dst string, load Loader) error {
	return c.have(ctx, key, load, func(string) (bool, error) { return c.Get(ctx, "", key, dst) })
}

// Size returns the size of the file of a key without a scope, and loads a missing file first.
func (c *Cache) Size(ctx context.Context, key string, load Loader) (sizeBytes int64, err error) {
	err = c.have(ctx, key, load, func(path string) (bool, error) {
		st, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err == nil {
			sizeBytes = st.Size()
		}
		return true, err
	})
	return sizeBytes, err
}

// Drop removes the file of a key without a scope. Callers that already have it keep it.
func (c *Cache) Drop(key string) error {
	if err := disk.Remove(c.path("", key)); err != nil {
		return fmt.Errorf("file cache: drop: %w", err)
	}
	return nil
}

// have loads the file, again if need be, until take finds it.
func (c *Cache) have(ctx context.Context, key string, load Loader, take func(path string) (bool, error)) error {
	path := c.path("", key)
	// Another process may remove the file before take finds it, but hardly five times in a row.
	for loads := 0; loads < 5; {
		if found, err := take(path); found || err != nil {
			return err
		}
		var began atomic.Bool
		loaded := c.loads.DoChan(path, func() (any, error) {
			began.Store(true)
			return ctx, rescue.Do(func() error { return c.load(ctx, path, load) })
		})
		select {
		case <-ctx.Done():
			if began.Load() {
				<-loaded // the load stops, too
			}
			return context.Cause(ctx)
		case r := <-loaded:
			switch beginner := r.Val.(context.Context); {
			case r.Err == nil:
				loads++
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case beginner.Err() == nil:
				return r.Err
			}
		}
	}
	return errors.New("file cache: the file is evicted as soon as it is loaded")
}

func (c *Cache) load(ctx context.Context, path string, load Loader) error {
	if _, err := os.Stat(path); err == nil {
		return nil // another load ended after the caller had looked for the file
	}
	err := c.keep(path, func(temp string) error {
		if err := load(ctx, temp); err != nil {
			return err
		}
		return os.Chmod(temp, 0o440) // read-only, because jobs share it
	})
	if err != nil {
		return fmt.Errorf("file cache: load: %w", err)
	}
	return nil
}
