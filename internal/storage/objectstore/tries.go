// The HTTP client under the S3 SDK: it ends a try in which no byte moves, fails at once if a caller is waiting, and
// says why the last try failed.

package objectstore

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"cutroom/internal/base/httpcall"
)

// httpClient sends the SDK's requests. It ends a try when no byte has moved for its limit, and decides whether
// another try may follow.
type httpClient struct {
	client *http.Client
	limit  time.Duration
}

// sendError is a failure to send. The SDK tries again unless it is final.
type sendError struct {
	error
	final bool
}

// CanceledError tells the SDK whether to give up.
func (e *sendError) CanceledError() bool { return e.final }
func (e *sendError) Unwrap() error       { return e.error }

func stalled(limit time.Duration, final bool) error {
	return &sendError{fmt.Errorf("no data moved for %s", limit), final}
}

// tryLimitKey is the context key of a limit that applies until the answer begins.
type tryLimitKey struct{}

type limitKey struct{}

// WithLimit returns a context for a caller that waits: an upload that stalls for limit fails at once, and later
// calls to the store fail without a request.
func WithLimit(ctx context.Context, limit time.Duration) context.Context {
	return context.WithValue(ctx, limitKey{}, &caller{limit: limit})
}

// caller tracks the tries of one caller.
type caller struct {
	limit   time.Duration
	stalled atomic.Bool // an upload stalled
}

func (c *httpClient) Do(req *http.Request) (*http.Response, error) {
	limit := c.limitOf(req)
	attempt, _ := req.Context().Value(attemptKey{}).(string)
	caller, _ := req.Context().Value(limitKey{}).(*caller)
	upload := caller != nil && (req.Method == http.MethodPut || req.Method == http.MethodPost)
	if upload {
		limit = min(limit, caller.limit)
	}
	if caller != nil && caller.stalled.Load() {
		return nil, stalled(caller.limit, true)
	}
	ctx, idle := httpcall.WithIdleTimeout(req.Context(), limit, func() error {
		if upload {
			caller.stalled.Store(true)
		}
		// The connection may have died while idle, so one more try may follow. After a second stall, no client
		// would still be waiting.
		return stalled(limit, upload || attempt != "attempt=1")
	})
	idle.Moved()
	req = req.WithContext(ctx)
	if req.Body != nil && req.Body != http.NoBody {
		req.Body = idle.Sent(req.Body)
	}
	res, err := c.client.Do(req)
	idle.Pause()
	if err != nil {
		// The pauses before further tries would be longer than the caller waits. Retrying does not fix a
		// certificate.
		err = idle.Explain(err)
		_, badCertificate := errors.AsType[*tls.CertificateVerificationError](err)
		if badCertificate || upload && attempt != "attempt=1" && attempt != "attempt=2" {
			err = &sendError{err, true}
		}
		idle.Stop()
		return nil, err
	}
	idle.SetLimit(c.limit) // the body's own limit: a shorter one applies only until the answer begins
	res.Body = idle.Received(res.Body)
	if res.Header.Get("Content-Encoding") == "gzip" && !deliversObject(req, res) {
		res.Body, res.ContentLength = &gunzipped{ReadCloser: res.Body}, -1
		res.Header.Del("Content-Encoding")
	}
	return res, nil
}

// deliversObject reports whether the answer's body is an object. An object's encoding is the uploader's, and its bytes
// must stay as they are.
func deliversObject(req *http.Request, res *http.Response) bool {
	operation := awsmiddleware.GetOperationName(req.Context())
	presigned := operation == ""
	return res.StatusCode < http.StatusBadRequest && (operation == "GetObject" || presigned)
}

// gunzipped is the body of an answer that a store compressed because a proxy asked it to.
type gunzipped struct {
	io.ReadCloser
	text *gzip.Reader // nil before the first Read
}

func (b *gunzipped) Read(p []byte) (n int, err error) {
	if b.text == nil {
		if b.text, err = gzip.NewReader(b.ReadCloser); err != nil {
			return 0, err // io.EOF for an answer without a body
		}
	}
	return b.text.Read(p)
}

// lateError is the error of a call whose time ended before its tries were used up.
type lateError struct {
	err     error
	lastTry string
}

func (e *lateError) Error() string { return fmt.Sprintf("%v (last try: %s)", e.err, e.lastTry) }
func (e *lateError) Unwrap() error { return e.err }

// nameLastTry makes an SDK call return a lateError. The SDK itself reports only that the context ended while it
// waited for the next try.
func nameLastTry(stack *middleware.Stack) error {
	var lastTry string // a stack serves one call
	call := middleware.InitializeMiddlewareFunc("NameLastTry", func(ctx context.Context, in middleware.InitializeInput,
		next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
		out, metadata, err := next.HandleInitialize(ctx, in)
		if err != nil && ctx.Err() != nil && lastTry != "" {
			err = &lateError{err, lastTry}
		}
		return out, metadata, err
	})
	try := middleware.FinalizeMiddlewareFunc("KeepLastTry", func(ctx context.Context, in middleware.FinalizeInput,
		next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
		out, metadata, err := next.HandleFinalize(ctx, in)
		if err != nil && ctx.Err() == nil {
			lastTry = explain(err)
		}
		return out, metadata, err
	})
	return errors.Join(stack.Initialize.Add(call, middleware.Before), stack.Finalize.Add(try, middleware.After))
}

// attemptKey is the context key of the number of a try, as "attempt=1".
type attemptKey struct{}

// signLess removes headers before they are signed. Proxies change Accept-Encoding, and the SDK's own headers are for
// Amazon's statistics. It runs in every try, because the SDK's retry step adds one of them.
func signLess(stack *middleware.Stack) error {
	return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("SignLess", func(ctx context.Context, in middleware.FinalizeInput,
		next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
		if req, ok := in.Request.(*smithyhttp.Request); ok {
			attempt, _, _ := strings.Cut(req.Header.Get("Amz-Sdk-Request"), ";")
			ctx = context.WithValue(ctx, attemptKey{}, attempt)
			for name := range req.Header {
				if name == "Accept-Encoding" || name == "Expect" || strings.HasPrefix(name, "Amz-Sdk-") {
					req.Header.Del(name)
				}
			}
		}
		return next.HandleFinalize(ctx, in)
	}), "Signing", middleware.Before)
}

// limitOf returns how long a request may stall. A store may need longer to assemble a multipart upload.
func (c *httpClient) limitOf(req *http.Request) time.Duration {
	if limit, set := req.Context().Value(tryLimitKey{}).(time.Duration); set {
		return limit
	}
	if req.Method == http.MethodPost {
		return 6 * c.limit
	}
	return c.limit
}
