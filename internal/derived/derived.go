// Package derived makes objects from stored ones when a request needs them: each once, however many
// requests wait for it, and few at the same time. It does not know what they hold.
package derived

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"cutroom/internal/fault"
	"cutroom/internal/media"
	"cutroom/internal/objectstore"
	"cutroom/internal/rescue"
)

// timeLimit bounds the making of one object, including the wait for its turn.
const timeLimit = 10 * time.Minute

// ErrBusy answers a request that waited for maxWait.
var ErrBusy = &fault.Error{Kind: fault.Unavailable, Code: "unavailable", RetryAfter: 5 * time.Second}

// Maker makes objects. It is safe for concurrent use.
type Maker struct {
	slots   *media.Slots
	maxWait time.Duration
	log     *slog.Logger
	flights singleflight.Group

	open    context.Context // ends with Close
	close   context.CancelFunc
	mu      sync.Mutex // held by Close and while a run starts
	running sync.WaitGroup
}

// New returns a Maker that makes atOnce objects at a time. A request waits for at most maxWait; the
// making continues without it.
func New(atOnce int, maxWait time.Duration, log *slog.Logger) *Maker {
	m := &Maker{slots: media.NewSlots(atOnce), maxWait: maxWait, log: log}
	m.open, m.close = context.WithCancel(context.Background())
	return m
}

// Close cancels all running work and waits for it to end.
func (m *Maker) Close() {
	m.mu.Lock()
	m.close()
	m.mu.Unlock()
	m.running.Wait()
}

// Get reads an object. If it is missing, Get first waits until produce has made it, called here or
// for an earlier request. After maxWait Get returns ErrBusy while produce continues: a repeated
// request finds the object or joins the wait.
func Get[T any](ctx context.Context, m *Maker, key string, read func() (T, error), produce func(context.Context) error) (T, error) {
	found, err := read()
	if !errors.Is(err, objectstore.ErrNotFound) {
		return found, err
	}
	if err := m.wait(ctx, key, produce); err != nil {
		return found, err
	}
	return read()
}

func (m *Maker) wait(ctx context.Context, key string, produce func(context.Context) error) error {
	made := m.flights.DoChan(key, func() (any, error) { return nil, m.run(ctx, key, produce) })
	over := time.NewTimer(m.maxWait)
	defer over.Stop()
	select {
	case r := <-made:
		return r.Err
	case <-over.C:
		return ErrBusy
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run makes an object independently of the request that asked first.
func (m *Maker) run(ctx context.Context, key string, produce func(context.Context) error) error {
	if !m.begin() {
		return ErrBusy
	}
	defer m.running.Done()
	work, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), timeLimit, ErrBusy)
	defer cancel()
	defer context.AfterFunc(m.open, cancel)()
	release, err := m.slots.Acquire(work)
	if err != nil {
		return ErrBusy
	}
	defer release()
	began := time.Now()
	err = rescue.Do(func() error { return produce(work) })
	if err != nil && work.Err() != nil {
		return ErrBusy.WithCause(err)
	}
	if took := time.Since(began); err != nil && took > m.maxWait {
		m.log.Warn("not made on demand", "name", key, "ms", took.Milliseconds(), "err", err) // the request may have ended
	}
	return err
}

func (m *Maker) begin() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open.Err() != nil {
		return false
	}
	m.running.Add(1)
	return true
}

// Recipe makes an object from a stored one.
type Recipe struct {
	Store       objectstore.Store
	Source, Key string // of the stored object, and of the new one
	// Folder is the pattern of the work folder's path, see [os.MkdirTemp]. Its name begins with the
	// job's id, so that erasing the job and the sweep find the folder.
	Folder string
	// Make makes the object from a local copy of the source, and stores it. ffmpeg may change
	// anything in dir.
	Make func(ctx context.Context, source, dir string) error
	// Note records the key, and returns 0 if the source was deleted in the meantime. The new object
	// is then deleted.
	Note func(ctx context.Context) (rows int64, err error)
}

// Run follows the recipe.
func (r Recipe) Run(ctx context.Context) error {
	folder, err := os.MkdirTemp(filepath.Dir(r.Folder), filepath.Base(r.Folder))
	if err != nil {
		return fmt.Errorf("create work folder: %w", err)
	}
	defer os.RemoveAll(folder)
	// Keep the source outside the folder that ffmpeg may write to: it may share its bytes with the
	// store.
	source, dir := filepath.Join(folder, "source"), filepath.Join(folder, "job")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("create work folder: %w", err)
	}
	if err := r.Store.Fetch(ctx, r.Source, source); err != nil {
		return fmt.Errorf("fetch source: %w", err)
	}
	if err := r.Make(ctx, source, dir); err != nil {
		return err
	}
	rows, err := r.Note(ctx)
	if err != nil {
		return fmt.Errorf("note derived object: %w", err)
	}
	if rows == 0 {
		return r.Store.Delete(ctx, r.Key)
	}
	return nil
}

// Room returns ErrBusy unless this replica can work and has room for so many bytes.
func Room(ctx context.Context, canWork func(context.Context) (freeBytes int64, err error), bytes int64) error {
	free, err := canWork(ctx)
	if err == nil && bytes > free {
		err = fmt.Errorf("%d bytes needed, %d free", bytes, free)
	}
	if err != nil {
		return ErrBusy.WithCause(err)
	}
	return nil
}
