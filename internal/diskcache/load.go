package diskcache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"cutroom/internal/disk"
	"cutroom/internal/rescue"
)

// Loader creates the file of a key at a path that does not exist yet.
type Loader func(ctx context.Context, path string) error

// Load is Get without a scope, but loads a missing file first. The file at dst is read-only. Callers for the
// same key share one load, which is cancelled only when all of them have gone.
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
	path, err := c.path("", key)
	if err != nil {
		return err
	}
	if err := disk.Remove(path); err != nil {
		return fmt.Errorf("file cache: drop: %w", err)
	}
	return nil
}

// have loads the file until take finds it.
func (c *Cache) have(ctx context.Context, key string, load Loader, take func(path string) (bool, error)) error {
	path, err := c.path("", key)
	if err != nil {
		return err
	}
	// Another process may remove the file before take finds it, but hardly five times in a row.
	for range 5 {
		found, err := take(path)
		if found || err != nil {
			return err
		}
		if err := c.await(ctx, path, load); err != nil {
			return err
		}
	}
	return errors.New("file cache: the file is evicted as soon as it is loaded")
}

// flight is a load that one or more callers wait for.
type flight struct {
	done    chan struct{}
	err     error // valid once done is closed
	waiters int   // guarded by Cache.flightsMu
	cancel  context.CancelFunc
}

// await joins the load of the path, or starts it, and waits until it ends.
func (c *Cache) await(ctx context.Context, path string, load Loader) error {
	c.flightsMu.Lock()
	f := c.flights[path]
	if f == nil {
		// The load must outlive the caller that started it.
		shared, cancel := context.WithCancel(context.WithoutCancel(ctx))
		f = &flight{done: make(chan struct{}), cancel: cancel}
		c.flights[path] = f
		go func() {
			defer cancel()
			f.err = rescue.Do(func() error { return c.load(shared, path, load) })
			c.leave(path, f, 0)
			close(f.done)
		}()
	}
	f.waiters++
	c.flightsMu.Unlock()

	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
	}
	if c.leave(path, f, 1) == 0 {
		f.cancel()
		<-f.done // the last caller waits for the load to stop
	}
	return context.Cause(ctx)
}

// leave removes n waiters from a flight and returns how many remain. It removes a flight that has ended or has
// no waiters from the map, so that the next caller starts a new one.
func (c *Cache) leave(path string, f *flight, n int) (waiters int) {
	c.flightsMu.Lock()
	defer c.flightsMu.Unlock()
	f.waiters -= n
	if (n == 0 || f.waiters == 0) && c.flights[path] == f {
		delete(c.flights, path)
	}
	return f.waiters
}

func (c *Cache) load(ctx context.Context, path string, load Loader) error {
	_, err := c.keep(path, func(temp string) error {
		if err := load(ctx, temp); err != nil {
			return err
		}
		return os.Chmod(temp, 0o440) // read-only, because jobs share it
	})
	if err != nil {
		return fmt.Errorf("file cache: load: %w", err)
	}
	// The caller has its file. If trim fails, the next Sweep fails too and reports the error.
	_ = c.trim(path)
	return nil
}
