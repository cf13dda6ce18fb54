package asset

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"cutroom/internal/disk"
	"cutroom/internal/objectstore"
)

// maxDownloads bounds the objects that are fetched from the bucket at a time.
// Each of them moves in several parts at once.
const maxDownloads = 4

// Cache keeps verified copies of assets on the local disk. Jobs receive hard
// links, so removing a copy never takes a file from under a job, in this or
// in another process that shares the directory. It is safe for concurrent use.
//
// A file named <sha256>.<ext> is complete and verified; downloads under way
// end in .part.
type Cache struct {
	dir      string
	maxBytes int64
	slots    chan struct{}

	mu      sync.Mutex
	flights map[Key]*flight
}

// flight is a download that one or more callers wait for.
type flight struct {
	done    chan struct{}
	err     error // valid once done is closed
	waiters int   // guarded by Cache.mu
	cancel  context.CancelFunc
}

// NewCache returns the cache in dir, which must exist and be on the disk of
// the work folders. The least recently used copies go when they exceed
// maxBytes together. Copies made before the machine last started are dropped.
func NewCache(dir string, maxBytes int64) (*Cache, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("asset cache: %w", err)
	}
	c := &Cache{dir: dir, maxBytes: maxBytes, slots: make(chan struct{}, maxDownloads), flights: map[Key]*flight{}}
	if err := c.forgetOtherBoot(); err != nil {
		return nil, fmt.Errorf("asset cache: %w", err)
	}
	return c, nil
}

func (c *Cache) path(k Key) string { return filepath.Join(c.dir, k.fileName()) }

// fetch links the asset to dst, downloading it first when it is not here.
// Callers of the same key share one download, which ends early only when all
// of them have gone.
func (c *Cache) fetch(ctx context.Context, from *objectstore.Bucket, k Key, dst string) error {
	// A copy can be swept between its arrival and the link to it, but hardly
	// again and again.
	for range 5 {
		err := c.link(k, dst)
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := c.await(ctx, from, k); err != nil {
			return err
		}
	}
	return errors.New("take asset from the cache: swept as fast as it arrives")
}

// sizeOf returns the size of the file that hashes to the key, which a verified
// copy tells, whatever the bucket holds by now.
func (c *Cache) sizeOf(ctx context.Context, from *objectstore.Bucket, k Key) (int64, error) {
	st, err := os.Stat(c.path(k))
	if errors.Is(err, fs.ErrNotExist) {
		if err := c.await(ctx, from, k); err != nil {
			return 0, err
		}
		st, err = os.Stat(c.path(k))
	}
	if err != nil {
		return 0, fmt.Errorf("size of asset: %w", err)
	}
	return st.Size(), nil
}

// link gives the caller the cached copy and marks it used; fs.ErrNotExist
// says that there is none.
func (c *Cache) link(k Key, dst string) error {
	if _, err := os.Lstat(c.path(k)); err != nil {
		return err // tells a missing copy from a missing folder of dst
	}
	if err := os.Link(c.path(k), dst); err != nil {
		if _, gone := os.Lstat(c.path(k)); gone != nil {
			return gone
		}
		return fmt.Errorf("take asset from the cache: %v", err) // %v: it must not read as a missing copy
	}
	now := time.Now()
	if err := os.Chtimes(dst, now, now); err != nil { // one file under two names
		return fmt.Errorf("mark asset as used: %v", err)
	}
	return nil
}

// await joins the download of the key, or starts it, and waits for its end.
func (c *Cache) await(ctx context.Context, from *objectstore.Bucket, k Key) error {
	c.mu.Lock()
	f := c.flights[k]
	if f == nil {
		// The download outlives the caller that happened to be first.
		shared, cancel := context.WithCancel(context.WithoutCancel(ctx))
		f = &flight{done: make(chan struct{}), cancel: cancel}
		c.flights[k] = f
		go func() {
			defer cancel()
			f.err = c.download(shared, from, k)
			c.forget(k, f)
			close(f.done)
		}()
	}
	f.waiters++
	c.mu.Unlock()

	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	f.waiters--
	last := f.waiters == 0
	if last && c.flights[k] == f {
		delete(c.flights, k) // the next caller starts anew instead of sharing the end
	}
	c.mu.Unlock()
	if last {
		f.cancel()
		<-f.done // nothing goes on behind the last caller's back
	}
	return context.Cause(ctx)
}

func (c *Cache) forget(k Key, f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flights[k] == f {
		delete(c.flights, k)
	}
}

// download brings one asset into the cache.
func (c *Cache) download(ctx context.Context, from *objectstore.Bucket, k Key) error {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	got := filepath.Join(c.dir, k.fileName()+"."+rand.Text()+partSuffix)
	defer os.Remove(got) // no-op once renamed
	if err := fetchVerified(ctx, from, k, got); err != nil {
		return err
	}
	// Nobody has a reason to write to it: many jobs read it.
	if err := os.Chmod(got, 0o440); err != nil {
		return fmt.Errorf("keep asset: %w", err)
	}
	if err := os.Rename(got, c.path(k)); err != nil {
		return fmt.Errorf("keep asset: %w", err)
	}
	// The job has its asset; the next Sweep meets the same failure and tells it.
	_ = c.evict(k)
	return nil
}

// fetchVerified downloads the object to dst and checks its hash. An object
// that is damaged in the bucket is deleted there: while it exists, its owner
// is told to skip the upload and could never mend it.
func fetchVerified(ctx context.Context, from *objectstore.Bucket, k Key, dst string) error {
	for try := 1; ; try++ {
		before, err := from.Stat(ctx, k.String())
		if err == nil {
			err = from.Fetch(ctx, k.String(), dst)
		}
		if err != nil {
			return fmt.Errorf("fetch asset: %w", err)
		}
		sum, _, err := disk.Digest(ctx, dst)
		if err != nil {
			return fmt.Errorf("verify asset: %w", err)
		}
		if sum == k.SHA256 {
			return nil
		}
		if err := os.Remove(dst); err != nil {
			return fmt.Errorf("verify asset: %w", err)
		}
		if try == 1 {
			continue // the line may be to blame, or an upload that replaced it just then
		}
		corrupt := fmt.Errorf("%w: %s holds %d bytes of hash %s", ErrCorrupt, k, before.SizeBytes, sum)
		after, err := from.Stat(ctx, k.String())
		if err == nil && after.ETag == before.ETag {
			err = from.Delete(ctx, k.String())
		}
		if err != nil && !errors.Is(err, objectstore.ErrNotFound) {
			// Not %w: that the store is unavailable now is not the job's failure.
			corrupt = fmt.Errorf("%w; not deleted: %v", corrupt, err)
		}
		return corrupt
	}
}
