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
	"sync/atomic"
	"time"

	"cutroom/internal/httpcall"
	"cutroom/internal/tracing"
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
	header   map[string]string
	// body opens the request body of bodyBytes bytes; nil for none.
	body      func() (io.ReadCloser, error)
	bodyBytes int64
}

// beforePayment reports whether a refusal of the call means that nothing has been paid yet.
func (x exchange) beforePayment() bool {
	switch x.endpoint {
	case "upload-token", "upload", "register", "audio-separation":
		return true
	}
	return false
}

// newTransport returns a transport without keep-alive and proxy. The server may close an idle connection during
// a request, and a POST that failed this way may have been executed. A proxy would resolve names and so bypass
// our address check.
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

// retry calls attempt, with backoff in between, until it succeeds, fails permanently, or has run maxAttempts
// times.
func (c *Client) retry(ctx context.Context, attempt func() error) error {
	for n := 1; ; n++ {
		err := attempt()
		var e *Error
		if err == nil || !errors.As(err, &e) {
			return err
		}
		c.log.Warn("separation provider call failed", "endpoint", e.Op, "status", e.Status, "attempt", n, "cause", e.Err)
		if !e.again || n == maxAttempts {
			return err
		}
		if cause := c.cfg.Sleep(ctx, backoff(n)); cause != nil {
			return &Error{Op: e.Op, Transient: true, Err: cause}
		}
	}
}

// ask makes a poll's only attempt.
func (c *Client) ask(ctx context.Context, x exchange, a answer) error {
	err := c.once(ctx, x, decode(a))
	var e *Error
	if errors.As(err, &e) {
		e.Transient = e.Transient || e.Status == http.StatusRequestTimeout || e.Status == http.StatusTooManyRequests
		c.log.Warn("separation provider poll failed", "endpoint", e.Op, "status", e.Status, "cause", e.Err)
	}
	return err
}

// reader reads a 2xx answer. Its error counts as the provider's if it is an *Error or came from the body; any other is
// local.
type reader func(status int, length int64, body io.Reader) error

// once makes one attempt of x, passes a 2xx answer to read, and records the call. Only GETs follow redirects.
func (c *Client) once(parent context.Context, x exchange, read reader) (err error) {
	parent, end := tracing.Start(parent, "provider "+x.endpoint)
	defer func() { end(err) }()
	started := time.Now()
	status := 0
	defer func() {
		c.cfg.Record(Call{Endpoint: x.endpoint, Success: err == nil, Status: status, Latency: time.Since(started)})
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
		if status < 200 || status > 299 {
			e := &Error{Op: x.endpoint, Status: status, Transient: !refusal(status), sent: true}
			if x.beforePayment() {
				e.Busy, e.RetryAfter = busy(resp, time.Now())
			}
			e.again = status >= 500 && !e.Busy
			return e
		}
		body := &erroringReader{r: idle.Received(resp.Body)}
		if err = read(status, resp.ContentLength, body); err == nil {
			return nil
		}
		if body.err == nil {
			return blame(err, x.endpoint, status)
		}
		err = body.err
	}
	var local *localError
	if errors.As(err, &local) {
		return local.err
	}
	e := &Error{Op: x.endpoint, Status: status, Err: httpcall.WithoutURL(err), sent: connected.Load()}
	switch {
	case parent.Err() != nil:
		e.Transient, e.Err = true, context.Cause(parent)
	case errors.Is(err, errForbidden):
	default:
		e.Transient, e.again = true, true
		if ctx.Err() != nil {
			e.Err = context.Cause(ctx)
		}
	}
	return e
}

// blame adds the call and the status to an *Error from reading an answer. Any other error
// is local, such as a full disk.
func blame(err error, endpoint string, status int) error {
	var e *Error
	if !errors.As(err, &e) {
		return fmt.Errorf("%s: %w", endpoint, err)
	}
	e.Op, e.Status, e.sent = endpoint, status, true
	return e
}

// roundTrip sends x and follows its redirects. It sends the key only to the API base.
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
		if x.method != http.MethodGet || !redirects(resp.StatusCode) {
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

func redirects(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

func (c *Client) request(ctx context.Context, x exchange, target *url.URL, withKey bool,
	idle *httpcall.IdleTimeout) (*http.Request, error) {
	req := (&http.Request{Method: x.method, URL: target, Host: target.Host, Header: http.Header{}}).WithContext(ctx)
	req.Header.Set("User-Agent", "cutroom")
	for name, value := range x.header {
		req.Header.Set(name, value)
	}
	if withKey {
		req.Header.Set(keyHeader, c.cfg.APIKey)
	}
	if x.body == nil {
		return req, nil
	}
	body, err := x.body()
	if err != nil {
		return nil, &localError{err}
	}
	req.Body, req.ContentLength = &ownBody{idle.Sent(body)}, x.bodyBytes
	if x.bodyBytes == 0 {
		// Length 0 with a body means "unknown" to net/http, which would send chunks.
		body.Close()
		req.Body = http.NoBody
	}
	return req, nil
}

// localError marks a failure to read our own file as it passes through net/http.
type localError struct{ err error }

func (e *localError) Error() string { return e.err.Error() }
func (e *localError) Unwrap() error { return e.err }

// ownBody is a request body that marks read failures as local.
type ownBody struct{ io.ReadCloser }

func (b *ownBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = &localError{err}
	}
	return n, err
}

// traced starts the time-out of an attempt once the connection is established, and sets
// connected. Until then the connect time-out applies.
func traced(ctx context.Context, idle *httpcall.IdleTimeout, connected *atomic.Bool) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:              func(string) { idle.Pause() },
		GotConn:              func(httptrace.GotConnInfo) { connected.Store(true); idle.Moved() },
		GotFirstResponseByte: idle.Moved,
	})
}

// answer is a JSON body of the protocol.
type answer interface {
	// missing names a required field that the answer lacks, or is "".
	missing() string
}

// decode reads a JSON answer into a, from its `result` envelope if it has one.
func decode(a answer) reader {
	return func(_ int, _ int64, body io.Reader) error {
		raw, err := io.ReadAll(io.LimitReader(body, maxJSONBytes+1))
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
		if err := json.Unmarshal(raw, a); err != nil {
			return malformed("answer is not the JSON we know")
		}
		if field := a.missing(); field != "" {
			return malformed("answer lacks %s", field)
		}
		return nil
	}
}
