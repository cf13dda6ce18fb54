// Package httpcall is shared by the clients of other services: short calls with a token or a credential, idle
// time-outs, and errors that are safe to log.
package httpcall

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// maxAnswerBytes bounds how much of an answer is read. Real answers are a few KiB.
const maxAnswerBytes = 1 << 20

// ErrTooLong means that the body of an answer with status 200 exceeds the size limit.
var ErrTooLong = errors.New("answer too long")

// Private returns a copy of client that follows no redirects and keeps no cookies; nil stands for http.DefaultClient.
// The copy shares the transport, so connections stay pooled.
func Private(client *http.Client) *http.Client {
	if client == nil {
		client = http.DefaultClient
	}
	c := *client
	// A redirect would carry the credentials to a host that nobody configured.
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.Jar = nil
	return &c
}

// Get requests JSON with a bearer token, which may be empty; see Do.
func Get(ctx context.Context, client *http.Client, address, bearer string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, nil, errors.New("cannot form a request") // the cause quotes the address
	}
	req.Header.Set("Accept", "application/json")
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	return Do(client, req)
}

// Do sends req and returns the status of the answer. If that is 200, it returns the whole body. For any other status it
// returns as much of the body as it could read, so that the caller can look for an error code in it. Never log that
// body: it may repeat what we sent. An error means that no complete answer came, or ErrTooLong. It is safe to log: it
// does not contain the address, whose query may hold a token.
func Do(client *http.Client, req *http.Request) (status int, body []byte, err error) {
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, cause(err)
	}
	defer func() { _ = resp.Body.Close() }() // nothing was written: closing loses nothing
	if resp.StatusCode >= http.StatusInternalServerError {
		return resp.StatusCode, nil, nil
	}
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	if resp.StatusCode != http.StatusOK {
		return resp.StatusCode, body, nil
	}
	if err != nil {
		return 0, nil, fmt.Errorf("read answer: %w", err)
	}
	if len(body) > maxAnswerBytes {
		return 0, nil, ErrTooLong
	}
	return resp.StatusCode, body, nil
}

// IsTemporary reports whether a status asks for another attempt later.
func IsTemporary(status int) bool {
	return status >= http.StatusInternalServerError || status == http.StatusTooManyRequests ||
		status == http.StatusRequestTimeout
}

// IsFailure reports whether a status alone shows that a service failed, or refused us: that counts as a failure of the
// dependency. Other statuses need the body.
func IsFailure(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusTooManyRequests:
		return true
	default:
		return status >= http.StatusInternalServerError
	}
}

// CountFailure counts an answer as a failure of the dependency that client calls, if client's transport counts those.
// It is for answers that the transport cannot recognise; see [IsFailure].
func CountFailure(client *http.Client) {
	if t, ok := client.Transport.(interface{ Failed() }); ok {
		t.Failed()
	}
}

// RetryAfter returns how long an answer asks to wait: seconds, or until a date. It is 0 if the answer does not say.
func RetryAfter(header http.Header, now time.Time) time.Duration {
	text := header.Get("Retry-After")
	if seconds, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.Duration(min(max(seconds, 0), math.MaxInt32)) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// cause returns the error without the address. It keeps errors of the network and of the context. Any other error may
// quote the bytes of a broken answer, which can echo our request, so only its kind is kept.
func cause(err error) error {
	err = WithoutURL(err)
	var network net.Error
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &network) || errors.As(err, &certificate) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("broken answer (%T)", err)
}

// WithoutURL removes the wrapper that quotes the address, whose query may be a signature or a token.
func WithoutURL(err error) error {
	var located *url.Error
	if errors.As(err, &located) {
		return located.Err
	}
	return err
}

// Sleep waits for d. If ctx ends first, Sleep returns its cause.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
