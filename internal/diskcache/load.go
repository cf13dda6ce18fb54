package diskcache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"cutroom/internal/disk"
)

// Loader makes the file of a key at a path that does not exist yet.
type Loader func(ctx context.Context, path string) error

// Load makes the file of no scope appear at dst like Get, read-only, and loads it
// first when it is not here. Callers of the same key share one load, which ends
// early only when all of them have gone.
func (c *Cache) Load(ctx context.Context, key, dst string, load Loader) error {
	return c.have(ctx, key, load, func(string) (bool, error) { return c.Get(ctx, "", key, dst) })
}

// Size is the size of the file of no scope, which is loaded when it is not here.
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

// Drop forgets the file of no scope. Who has it keeps it.
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
	// A file can be removed between its arrival and the look for it, but hardly
	// again and again.
	for range 5 {
		found, err := take(path)
		if found || err != nil {
			return err
		}
		if err := c.await(ctx, path, load); err != nil {
			return err
		}
	}
	return errors.New("file cache: removed as fast as it arrives")
}

// flight is a load that one or more callers wait for.
type flight struct {
	done    chan struct{}
	err     error // valid once done is closed
	waiters int   // guarded by Cache.flightsMu
	cancel  context.CancelFunc
}

// await joins the load of the path, or starts it, and waits for its end.
func (c *Cache) await(ctx context.Context, path string, load Loader) error {
	c.flightsMu.Lock()
	f := c.flights[path]
	if f == nil {
		// The load outlives the caller that happened to be first.
		shared, cancel := context.WithCancel(context.WithoutCancel(ctx))
		f = &flight{done: make(chan struct{}), cancel: cancel}
		c.flights[path] = f
		go func() {
			defer cancel()
			f.err = c.load(shared, path, load)
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
		<-f.done // nothing goes on behind the last caller's back
	}
	return context.Cause(ctx)
}

// leave takes n waiters from a flight, and returns how many are left. A flight
// that has ended, or is about to for want of waiters, is found by nobody: the next
// caller starts anew.
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
		return os.Chmod(temp, 0o440) // nobody has a reason to write to it: many jobs read it
	})
	if err != nil {
		return fmt.Errorf("file cache: load: %w", err)
	}
	// The caller has its file; the next Sweep meets the same failure and tells it.
	_ = c.trim(path)
	return nil
}
