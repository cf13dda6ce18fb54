package httpcall

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// ErrIdle is the cause of a request's cancellation when no byte moved for its idle time-out.
var ErrIdle = errors.New("no bytes moved within the socket time-out")

// IdleTimeout cancels a request when no byte of it has moved for a while. A fixed time-out would be too short for a
// large body on a slow line and too long for a small one on a dead line.
//
// The timer is stopped while nobody reads the body of the answer, because a slow consumer does not mean that the
// service is silent.
type IdleTimeout struct {
	limit  atomic.Int64 // nanoseconds; atomic because the request and its answer may move at the same time
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	idle   func() error
}

// WithIdleTimeout returns a context for one request, and its timer, which starts at the first Moved. For a request that
// the timer cancelled, Explain returns idle's error, or ErrIdle if idle is nil. The caller must call Stop.
func WithIdleTimeout(ctx context.Context, limit time.Duration, idle func() error) (context.Context, *IdleTimeout) {
	if idle == nil {
		idle = func() error { return ErrIdle }
	}
	ctx, cancel := context.WithCancelCause(ctx)
	t := &IdleTimeout{ctx: ctx, cancel: cancel, idle: idle, timer: time.AfterFunc(limit, func() { cancel(ErrIdle) })}
	t.SetLimit(limit)
	t.timer.Stop()
	return ctx, t
}

// SetLimit changes the limit. It takes effect at the next Moved.
func (t *IdleTimeout) SetLimit(limit time.Duration) { t.limit.Store(int64(limit)) }

// Moved restarts the timer.
func (t *IdleTimeout) Moved() { t.timer.Reset(time.Duration(t.limit.Load())) }

// Pause stops the timer until the next Moved.
func (t *IdleTimeout) Pause() { t.timer.Stop() }

// Stop stops the timer and ends the request's context.
func (t *IdleTimeout) Stop() {
	t.timer.Stop()
	t.cancel(nil)
}

// Explain returns err, or the idle error if the timer cancelled the request.
func (t *IdleTimeout) Explain(err error) error {
	if err != nil && err != io.EOF && context.Cause(t.ctx) == ErrIdle {
		return t.idle()
	}
	return err
}

// Sent wraps the body of the request. Each read by the connection counts as movement.
func (t *IdleTimeout) Sent(body io.ReadCloser) io.ReadCloser { return &sent{body, t} }

// Received wraps the body of the answer. Closing it calls Stop.
func (t *IdleTimeout) Received(body io.ReadCloser) io.ReadCloser { return &received{body, t} }

type sent struct {
	io.ReadCloser
	clock *IdleTimeout
}

func (b *sent) Read(p []byte) (int, error) {
	b.clock.Moved()
	return b.ReadCloser.Read(p)
}

type received struct {
	io.ReadCloser
	clock *IdleTimeout
}

func (b *received) Read(p []byte) (int, error) {
	b.clock.Moved()
	n, err := b.ReadCloser.Read(p)
	b.clock.Pause()
	return n, b.clock.Explain(err)
}

func (b *received) Close() error {
	b.clock.Stop()
	return b.ReadCloser.Close()
}
