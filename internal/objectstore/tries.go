package objectstore

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"cutroom/internal/httpcall"
)

// httpClient sends the SDK's requests. It ends a try when no byte moved for the limit, and decides
// whether another may follow.
type httpClient struct {
	client *http.Client
	limit  time.Duration
}

// stalledError tells the SDK's retryer whether another try may work.
type stalledError struct {
	limit time.Duration
	first bool // it was the first try of the call
}

func (e *stalledError) Error() string { return fmt.Sprintf("no data moved for %s", e.limit) }

// CanceledError allows one more try after a stall, because the connection may have died while idle.
// After a second stall it stops: no client would still be waiting. The SDK retries any other
// failure to send.
func (e *stalledError) CanceledError() bool { return !e.first }

// tryLimitKey is the context key of a value that replaces the limit.
type tryLimitKey struct{}

type promptKey struct{}

// Prompt returns a context for a caller who waits: an upload that stalls for limit fails at once,
// and later calls to the store fail without a request.
func Prompt(ctx context.Context, limit time.Duration) context.Context {
	return context.WithValue(ctx, promptKey{}, &caller{limit: limit})
}

// finalError stops the retries.
type finalError struct{ error }

func (finalError) CanceledError() bool { return true }
func (e finalError) Unwrap() error     { return e.error }

// caller tracks one caller's tries.
type caller struct {
	limit time.Duration
	lost  atomic.Bool // an upload stalled
}

func (c *httpClient) Do(req *http.Request) (*http.Response, error) {
	limit := c.limitOf(req)
	attempt, _, _ := strings.Cut(req.Header.Get("Amz-Sdk-Request"), ";")
	caller, _ := req.Context().Value(promptKey{}).(*caller)
	upload := caller != nil && (req.Method == http.MethodPut || req.Method == http.MethodPost)
	if upload {
		limit = min(limit, caller.limit)
	}
	if caller != nil && caller.lost.Load() {
		return nil, &stalledError{limit: caller.limit}
	}
	ctx, idle := httpcall.WithIdleTimeout(req.Context(), limit, func() error {
		if upload {
			caller.lost.Store(true)
		}
		return &stalledError{limit, attempt == "attempt=1" && !upload}
	})
	idle.Moved()
	req = req.WithContext(ctx)
	if req.Body != nil && req.Body != http.NoBody {
		req.Body = idle.Sent(req.Body)
	}
	res, err := c.client.Do(req)
	idle.Pause()
	if err != nil {
		// The pauses before further tries would be longer than the caller waits.
		if err = idle.Explain(err); upload && attempt != "attempt=1" && attempt != "attempt=2" {
			err = finalError{err}
		}
		idle.Stop()
		return nil, err
	}
	res.Body = idle.Received(res.Body)
	return res, nil
}

// limitOf is how long a request may stall. A store may need longer to assemble a multipart upload.
func (c *httpClient) limitOf(req *http.Request) time.Duration {
	if limit, set := req.Context().Value(tryLimitKey{}).(time.Duration); set {
		return limit
	}
	if req.Method == http.MethodPost {
		return 6 * c.limit
	}
	return c.limit
}
