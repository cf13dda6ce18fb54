// Package ondemand makes files on request that were not made in time: each once, however many
// requests wait for it, and few at the same time. It does not know what they are.
package ondemand

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"cutroom/internal/fault"
	"cutroom/internal/job"
	"cutroom/internal/media"
)

// timeLimit bounds the making of one thing, including the wait for its turn.
const timeLimit = 10 * time.Minute

// ErrBusy answers a request that waited for maxWait.
var ErrBusy = &fault.Error{Kind: fault.Unavailable, Code: "unavailable", RetryAfter: 5 * time.Second}

// Maker makes things. It is safe for concurrent use.
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

// New returns a Maker that makes atOnce things at a time. A request waits for at most maxWait; the
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

// Make waits until the named thing is made, by this call of make or by one already running. After
// maxWait it returns ErrBusy while make continues: a repeated request finds the result or joins the
// wait.
func (m *Maker) Make(ctx context.Context, name string, make func(context.Context) error) error {
	made := m.flights.DoChan(name, func() (any, error) { return nil, m.run(ctx, name, make) })
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

// run makes a thing independently of the request that asked first.
func (m *Maker) run(ctx context.Context, name string, make func(context.Context) error) error {
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
	err = job.Recover(func() error { return make(work) })
	if err != nil && work.Err() != nil {
		return ErrBusy.WithCause(err)
	}
	if took := time.Since(began); err != nil && took > m.maxWait {
		m.log.Warn("not made on demand", "name", name, "ms", took.Milliseconds(), "err", err) // the request may have ended
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
