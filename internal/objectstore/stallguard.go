package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
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

// errStalled is the cause of the cancellation.
var errStalled = errors.New("no data moved")

// stalledError tells the SDK's retryer whether another try may work.
type stalledError struct {
	limit time.Duration
	first bool // it was the first try of the call
}

func (e *stalledError) Error() string { return fmt.Sprintf("no data moved for %s", e.limit) }

// ConnectionError asks for one more try: the connection may have died while it
// was idle. A store that stands still twice is not asked until nobody waits.
func (e *stalledError) ConnectionError() bool { return e.first }

// tryLimitKey is the key of a context value that replaces the limit.
type tryLimitKey struct{}

func (g *stallGuard) Do(req *http.Request) (*http.Response, error) {
	limit := g.limitOf(req)
	first := strings.HasPrefix(req.Header.Get("Amz-Sdk-Request"), "attempt=1;")
	ctx, cancel := context.WithCancelCause(req.Context())
	timer := time.AfterFunc(limit, func() { cancel(errStalled) })
	stalled := func(err error) error {
		if err != nil && err != io.EOF && context.Cause(ctx) == errStalled {
			return &stalledError{limit, first}
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
		err = stalled(err)
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
