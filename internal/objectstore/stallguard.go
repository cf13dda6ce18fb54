package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// stallGuard is an HTTP client that ends a request in which no byte moved for
// the limit. A fixed time-out would be too short for a large object on a slow
// line and too long for a small one on a dead line.
//
// While a response body is not being read the clock stands still: a slow
// consumer is not a stalled store.
type stallGuard struct {
	client *http.Client
	limit  time.Duration
}

// ErrStalled is the cause of the cancellation of a request that stood still, as a
// transport sees it.
var ErrStalled = errors.New("no data moved")

// stalledError tells the SDK's retryer whether another try may work.
type stalledError struct {
	limit time.Duration
	first bool // it was the first try of the call
}

func (e *stalledError) Error() string { return fmt.Sprintf("no data moved for %s", e.limit) }

// CanceledError refuses more than one more try: the connection may have died
// while it was idle. A store that stands still twice is not asked until nobody
// waits. The SDK takes any other failure to send for one worth a try.
func (e *stalledError) CanceledError() bool { return !e.first }

// tryLimitKey is the key of a context value that replaces the limit.
type tryLimitKey struct{}

type promptKey struct{}

// Prompt returns a context for somebody who waits for an answer: an upload that
// stands still for limit has failed, and the store is not asked anything more.
func Prompt(ctx context.Context, limit time.Duration) context.Context {
	return context.WithValue(ctx, promptKey{}, &caller{limit: limit})
}

// finalError ends the tries.
type finalError struct{ error }

func (finalError) CanceledError() bool { return true }
func (e finalError) Unwrap() error     { return e.error }

// caller is who waits.
type caller struct {
	limit time.Duration
	lost  atomic.Bool // an upload stood still
}

func (g *stallGuard) Do(req *http.Request) (*http.Response, error) {
	limit := g.limitOf(req)
	first := strings.HasPrefix(req.Header.Get("Amz-Sdk-Request"), "attempt=1;")
	caller, _ := req.Context().Value(promptKey{}).(*caller)
	upload := caller != nil && (req.Method == http.MethodPut || req.Method == http.MethodPost)
	if upload {
		limit = min(limit, caller.limit)
	}
	if caller != nil && caller.lost.Load() {
		return nil, &stalledError{limit: caller.limit}
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	timer := time.AfterFunc(limit, func() { cancel(ErrStalled) })
	stalled := func(err error) error {
		if err != nil && err != io.EOF && context.Cause(ctx) == ErrStalled {
			if upload {
				caller.lost.Store(true)
			}
			return &stalledError{limit, first && !upload}
		}
		return err
	}
	req = req.WithContext(ctx)
	if req.Body != nil && req.Body != http.NoBody {
		req.Body = &sentBody{ReadCloser: req.Body, moved: func() { timer.Reset(limit) }}
	}
	res, err := g.client.Do(req)
	timer.Stop()
	if err != nil {
		// The pauses before further tries are longer than anybody waits.
		if err = stalled(err); upload && !first && !strings.HasPrefix(req.Header.Get("Amz-Sdk-Request"), "attempt=2;") {
			err = finalError{err}
		}
		cancel(nil)
		return nil, err
	}
	res.Body = &receivedBody{ReadCloser: res.Body, timer: timer, limit: limit, stalled: stalled, cancel: cancel}
	return res, nil
}

// limitOf is how long a request may stand still. A store may need a while to
// put an upload together.
func (g *stallGuard) limitOf(req *http.Request) time.Duration {
	if limit, set := req.Context().Value(tryLimitKey{}).(time.Duration); set {
		return limit
	}
	if req.Method == http.MethodPost {
		return 6 * g.limit
	}
	return g.limit
}

// sentBody reports each read of a request body, which happens as the
// connection takes the bytes.
type sentBody struct {
	io.ReadCloser
	moved func()
}

func (b *sentBody) Read(p []byte) (int, error) {
	b.moved()
	return b.ReadCloser.Read(p)
}

// receivedBody runs the clock during each read of a response body.
type receivedBody struct {
	io.ReadCloser
	timer   *time.Timer
	limit   time.Duration
	stalled func(error) error
	cancel  context.CancelCauseFunc
}

func (b *receivedBody) Read(p []byte) (int, error) {
	b.timer.Reset(b.limit)
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
	return n, b.stalled(err)
}

func (b *receivedBody) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	return b.ReadCloser.Close()
}
