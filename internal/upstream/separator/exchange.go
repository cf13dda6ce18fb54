// One HTTP call to the provider: time-outs, redirects, the key, repeats, and the error that an answer means.

package separator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"cutroom/internal/base/httpcall"
	"cutroom/internal/base/tracing"
)

const (
	maxAttempts  = 3       // of a call that may be repeated
	maxRedirects = 5       // of one attempt
	maxJSONBytes = 1 << 20 // of an API answer
	keyHeader    = "XP-API-KEY"
)

// exchange describes one HTTP call so that it can be repeated.
type exchange struct {
	endpoint string // as in Call.Endpoint
	method   string
	url      *url.URL
	withKey  bool
	header   http.Header
	// body opens the request body of bodyBytes bytes; nil for none.
	body      func() (io.ReadCloser, error)
	bodyBytes int64
}

// beforePayment are the endpoints at which a refusal means that nothing has been paid yet.
var beforePayment = []string{"upload-token", "upload", "register", "audio-separation"}

// newTransport returns a transport without keep-alive and proxy. The server may close an idle connection during a
// request, and a POST that failed this way may have been executed. A proxy would resolve names and so bypass our
// address check.
func (c *Client) newTransport() *http.Transport {
	configured := &net.Dialer{Timeout: c.cfg.ConnectTimeout}
	guarded := &net.Dialer{Timeout: c.cfg.ConnectTimeout, Control: refusePrivate}
	return &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(addr)
			if err == nil && c.hosts.has(host, port) {
				return configured.DialContext(ctx, network, addr)
			}
			return guarded.DialContext(ctx, network, addr)
		},
		TLSHandshakeTimeout:    c.cfg.ConnectTimeout,
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// retry calls attempt, with growing pauses in between, until it succeeds, fails permanently, or has run maxAttempts
// times.
func (c *Client) retry(ctx context.Context, attempt func() error) error {
	for n := 1; ; n++ {
		err := attempt()
		e, ok := errors.AsType[*Error](err)
		if !ok {
			return err
		}
		c.cfg.Log.Warn("separation provider call failed", "endpoint", e.Op, "status", e.Status, "attempt", n, "cause", e.Err)
		if !e.again || n == maxAttempts {
			return err
		}
		if err := c.cfg.Sleep(ctx, time.Second<<(n-1)); err != nil {
			return err
		}
	}
}

// ask makes a poll's only attempt.
func (c *Client) ask(ctx context.Context, x exchange, read reader) error {
	err := c.once(ctx, x, read)
	if e, ok := errors.AsType[*Error](err); ok {
		e.Transient = e.Transient || e.Status == http.StatusRequestTimeout || e.Status == http.StatusTooManyRequests
		c.cfg.Log.Warn("separation provider poll failed", "endpoint", e.Op, "status", e.Status, "cause", e.Err)
	}
	return err
}

// reader reads a 2xx answer. Its error is an [Error] if the answer breaks the protocol or our limits.
type reader func(resp *http.Response) error

// statusOnly does not read the body.
func statusOnly(*http.Response) error { return nil }

// once makes one attempt of x, passes a 2xx answer to read, and records the call. If parent ends, it returns
// parent's cause.
func (c *Client) once(parent context.Context, x exchange, read reader) (err error) {
	parent, end := tracing.Start(parent, "provider "+x.endpoint)
	defer func() { end(err) }()
	started := time.Now()
	status := 0
	defer func() {
		c.cfg.Record(Call{Endpoint: x.endpoint, Success: err == nil, Latency: time.Since(started)})
	}()
	ctx, cancelTimeout := context.WithTimeoutCause(parent, c.cfg.RequestTimeout, errTimeout)
	defer cancelTimeout()
	ctx, idle := httpcall.WithIdleTimeout(ctx, c.cfg.SocketTimeout, nil)
	defer idle.Stop()
	var connected atomic.Bool

	resp, err := c.roundTrip(traced(ctx, idle, &connected), x, idle)
	if err == nil {
		defer resp.Body.Close()
		status = resp.StatusCode
		resp.Body = idle.Received(resp.Body)
		if status >= 200 && status <= 299 {
			err = read(resp)
		} else {
			err = x.failure(resp)
		}
	}
	e, ok := errors.AsType[*Error](err)
	switch {
	case err == nil:
		return nil
	case ok:
	case isLocal(err):
		return fmt.Errorf("%s: %w", x.endpoint, err)
	case parent.Err() != nil:
		return context.Cause(parent)
	case errors.Is(err, errForbidden):
		e = &Error{Err: err}
	default:
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		e = &Error{Transient: true, again: true, Err: httpcall.WithoutURL(err)}
	}
	e.Op, e.Status, e.sent = x.endpoint, status, status != 0 || connected.Load()
	return e
}

// failure is the error of an answer that is not 2xx.
func (x exchange) failure(resp *http.Response) *Error {
	e := &Error{Status: resp.StatusCode}
	if slices.Contains(beforePayment, x.endpoint) {
		e.Busy = e.Status == http.StatusTooManyRequests ||
			e.Status == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != ""
		e.RetryAfter = min(httpcall.RetryAfter(resp.Header, time.Now()), maxRetryAfter)
	}
	e.Transient, e.again = !e.refused(), e.Status >= 500 && !e.Busy
	return e
}

// roundTrip sends x. Only GETs follow redirects, and only the API base gets the key.
func (c *Client) roundTrip(ctx context.Context, x exchange, idle *httpcall.IdleTimeout) (*http.Response, error) {
	target, withKey := x.url, x.withKey
	for hop := 0; ; hop++ {
		req, err := c.request(ctx, x, target, withKey, idle)
		if err != nil {
			return nil, err
		}
		resp, err := c.observed.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		if x.method != http.MethodGet || !slices.Contains(redirects, resp.StatusCode) {
			return resp, nil
		}
		resp.Body.Close()
		if hop == maxRedirects {
			return nil, fmt.Errorf("%w: more than %d redirects", errForbidden, maxRedirects)
		}
		next, err := target.Parse(resp.Header.Get("Location"))
		if err != nil || resp.Header.Get("Location") == "" {
			return nil, fmt.Errorf("%w: redirect to no URL", errForbidden)
		}
		if err := c.checkLink(next); err != nil {
			return nil, fmt.Errorf("redirect: %w", err)
		}
		withKey = withKey && sameOrigin(next, c.base)
		target = next
	}
}

var redirects = []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect,
	http.StatusPermanentRedirect}

func (c *Client) request(ctx context.Context, x exchange, target *url.URL, withKey bool,
	idle *httpcall.IdleTimeout) (*http.Request, error) {
	req := (&http.Request{Method: x.method, URL: target, Host: target.Host, Header: x.header.Clone()}).WithContext(ctx)
	req.Header.Set("User-Agent", "cutroom")
	if withKey {
		req.Header.Set(keyHeader, c.cfg.APIKey)
	}
	if x.body == nil {
		return req, nil
	}
	body, err := x.body()
	if err != nil {
		return nil, err
	}
	req.Body, req.ContentLength = idle.Sent(body), x.bodyBytes
	return req, nil
}

// traced starts the time-out of an attempt once the connection is established, and sets connected. Until then the
// connect time-out applies.
func traced(ctx context.Context, idle *httpcall.IdleTimeout, connected *atomic.Bool) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:              func(string) { idle.Pause() },
		GotConn:              func(httptrace.GotConnInfo) { connected.Store(true); idle.Moved() },
		GotFirstResponseByte: idle.Moved,
	})
}

// decode reads a JSON answer, from its `result` envelope if it has one, which must then be valid.
func decode(answer any, valid func() bool) reader {
	return func(resp *http.Response) error {
		raw, err := io.ReadAll(io.LimitReader(resp.Body, maxJSONBytes+1))
		if err != nil {
			return err
		}
		if len(raw) > maxJSONBytes {
			return malformed("answer larger than %d bytes", maxJSONBytes)
		}
		var envelope struct{ Result json.RawMessage }
		if err := json.Unmarshal(raw, &envelope); err != nil {
			return malformed("answer is not the JSON we know")
		}
		if len(envelope.Result) > 0 && envelope.Result[0] == '{' {
			raw = envelope.Result
		}
		if err := json.Unmarshal(raw, answer); err != nil {
			return malformed("answer is not the JSON we know")
		}
		if !valid() {
			return malformed("answer lacks a required field")
		}
		return nil
	}
}
