// Package derived runs work that a request needs but may not be able to wait for. Each piece runs once, however many
// requests wait for it, and few run at a time. Most pieces make an object from a stored one. The package does not know
// what these objects hold.
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

	"cutroom/internal/base/fault"
	"cutroom/internal/base/rescue"
	"cutroom/internal/film/media"
	"cutroom/internal/storage/objectstore"
)

// timeLimit bounds one piece of work, including the wait for its turn.
const timeLimit = 10 * time.Minute

// ErrBusy answers a request that waited for MaxWait.
var ErrBusy = fault.Busy(5 * time.Second)

// Options configures a Maker.
type Options struct {
	AtOnce    int           // pieces of work that run at the same time
	PerHolder int           // how many of these one holder may have
	MaxWait   time.Duration // of a request; the work continues without it
	Space     *Space
	Log       *slog.Logger
}

// Maker does such work. It is safe for concurrent use.
type Maker struct {
	Options
	slots   *media.FairSlots
	flights singleflight.Group

	open    context.Context // ends with Close
	close   context.CancelFunc
	mu      sync.Mutex // held by Close and while a run starts
	running sync.WaitGroup
}

// New returns a Maker.
func New(o Options) *Maker {
	m := &Maker{Options: o, slots: media.NewFairSlots(media.FairLimits{Slots: o.AtOnce, PerHolder: o.PerHolder})}
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

// Get reads an object. If it is missing, Get first waits until produce has made it, called here or for an earlier
// request. After MaxWait Get returns ErrBusy while produce continues: a repeated request finds the object or joins the
// wait. Holders, which are users or jobs, take turns.
func Get[T any](ctx context.Context, m *Maker, holder, key string, read func() (T, error), produce func(context.Context) error) (T, error) {
	found, err := read()
	if !errors.Is(err, objectstore.ErrNotFound) {
		return found, err
	}
	if _, err := Do(ctx, m, holder, key, func(ctx context.Context) (struct{}, error) { return struct{}{}, produce(ctx) }); err != nil {
		return found, err
	}
	return read()
}

// Do returns the result of work. If work with the same key is already running, the request waits for its result. After
// MaxWait Do returns ErrBusy while work continues. Holders take turns.
func Do[T any](ctx context.Context, m *Maker, holder, key string, work func(context.Context) (T, error)) (result T, err error) {
	done := m.flights.DoChan(key, func() (any, error) {
		var made T
		err := m.run(ctx, holder, key, func(ctx context.Context) (err error) { made, err = work(ctx); return err })
		return made, err
	})
	over := time.NewTimer(m.MaxWait)
	defer over.Stop()
	select {
	case r := <-done:
		return r.Val.(T), r.Err
	case <-over.C:
		return result, ErrBusy
	case <-ctx.Done():
		return result, context.Cause(ctx)
	}
}

// run works independently of the request that asked first.
func (m *Maker) run(ctx context.Context, holder, key string, produce func(context.Context) error) error {
	if !m.begin() {
		return ErrBusy
	}
	defer m.running.Done()
	work, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), timeLimit, ErrBusy)
	defer cancel()
	defer context.AfterFunc(m.open, cancel)()
	release, err := m.slots.Acquire(work, holder)
	if err != nil {
		return ErrBusy
	}
	defer release()
	began := time.Now()
	err = rescue.Do(func() error { return produce(work) })
	if err != nil && work.Err() != nil {
		return ErrBusy.WithCause(err)
	}
	if took := time.Since(began); err != nil && took > m.MaxWait {
		m.Log.Warn("not made on demand", "name", key, "ms", took.Milliseconds(), "err", err) // the request may have ended
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
	Folder      string // pattern for WithCopy; begins with the job's id, so that erasing the job and the sweep find it
	Space       *Space
	Bytes       int64 // of disk space that Run needs
	// Make makes the object from a copy of the source, and stores it.
	Make func(source, dir string) error
	// Note records the key, and returns 0 if the source was deleted in the meantime. The new object is then deleted.
	Note func() (rows int64, err error)
}

// Run follows the recipe.
func (r Recipe) Run(ctx context.Context) error {
	release, err := r.Space.Reserve(ctx, r.Bytes)
	if err != nil {
		return err
	}
	defer release()
	if err := WithCopy(r.Folder, func(source string) error { return r.Store.Fetch(ctx, r.Source, source) }, r.Make); err != nil {
		return err
	}
	rows, err := r.Note()
	if err != nil {
		return fmt.Errorf("note derived object: %w", err)
	}
	if rows == 0 {
		return r.Store.Delete(ctx, r.Key)
	}
	return nil
}

// WithCopy calls do with a copy of a source, which fetch writes, and an empty folder. ffmpeg may change anything in the
// folder, but not the copy: it may share its bytes with the store. Both are in a new work folder, whose path follows
// the pattern, see [os.MkdirTemp], and which WithCopy removes.
func WithCopy(pattern string, fetch func(source string) error, do func(source, dir string) error) error {
	folder, err := os.MkdirTemp(filepath.Dir(pattern), filepath.Base(pattern))
	if err != nil {
		return fmt.Errorf("create work folder: %w", err)
	}
	defer os.RemoveAll(folder)
	source, dir := filepath.Join(folder, "source"), filepath.Join(folder, "job")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("create work folder: %w", err)
	}
	if err := fetch(source); err != nil {
		return fmt.Errorf("fetch source: %w", err)
	}
	return do(source, dir)
}

// Space reserves disk space for what requests write. Checking only the free space would admit many requests although
// only one fits. It is safe for concurrent use.
type Space struct {
	// canWork returns how many bytes this replica may still write, or why it must not work now.
	canWork  func(context.Context) (freeBytes int64, err error)
	mu       sync.Mutex
	reserved int64
}

// NewSpace returns the Space of a disk.
func NewSpace(canWork func(context.Context) (freeBytes int64, err error)) *Space {
	return &Space{canWork: canWork}
}

// Reserve reserves a number of bytes until release is called. It returns ErrBusy if they do not fit, or if this replica
// cannot work. Bytes count as reserved even after they were written.
func (s *Space) Reserve(ctx context.Context, bytes int64) (release func(), err error) {
	free, err := s.canWork(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.reserved+bytes > free {
		err = fmt.Errorf("%d bytes needed, %d free, %d reserved", bytes, free, s.reserved)
	}
	if err != nil {
		return nil, ErrBusy.WithCause(err)
	}
	s.reserved += bytes
	return sync.OnceFunc(func() {
		s.mu.Lock()
		s.reserved -= bytes
		s.mu.Unlock()
	}), nil
}
