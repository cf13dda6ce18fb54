package httpcall

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// ErrIdle is the cause with which a request is cancelled after no byte has moved for its
// idle time-out.
var ErrIdle = errors.New("no bytes moved within the socket time-out")

// IdleTimeout ends a request over which no byte moves for a while. A fixed
// time-out would be too short for a large body on a slow line and too long for a
// small one on a dead line.
//
// While the body of the answer is not being read the clock stands still: a slow
// consumer is not a silent service.
type IdleTimeout struct {
	limit  atomic.Int64 // nanoseconds; the request and its answer may move at the same time
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	idle   func() error
}

// WithIdleTimeout returns a context for one request, and its clock, which stands still
// until Moved. Explain returns idle's error for a request that the clock ended, or
// ErrIdle if idle is nil. The caller must call Stop.
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

// SetLimit changes the limit for whatever moves next.
func (t *IdleTimeout) SetLimit(limit time.Duration) { t.limit.Store(int64(limit)) }

// Moved restarts the clock.
func (t *IdleTimeout) Moved() { t.timer.Reset(time.Duration(t.limit.Load())) }

// Pause stops the clock until something moves.
func (t *IdleTimeout) Pause() { t.timer.Stop() }

// Stop ends the request.
func (t *IdleTimeout) Stop() {
	t.timer.Stop()
	t.cancel(nil)
}

// Explain returns err, or the error of an idle request if that is why it failed.
func (t *IdleTimeout) Explain(err error) error {
	if err != nil && err != io.EOF && context.Cause(t.ctx) == ErrIdle {
		return t.idle()
	}
	return err
}

// Sent is the body of the request. It is read as the connection takes the bytes.
func (t *IdleTimeout) Sent(body io.ReadCloser) io.ReadCloser { return &sent{body, t} }

// Received is the body of the answer, whose Close is a Stop.
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
