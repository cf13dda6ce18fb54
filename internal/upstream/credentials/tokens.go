// Access tokens of a service account: cached, renewed before they expire, and fetched by one request for all waiting
// callers.

package credentials

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/jwt"
	"golang.org/x/sync/singleflight"

	"cutroom/internal/base/httpcall"
)

const (
	// tokenTimeout bounds one request for an access token, which may have many callers.
	tokenTimeout = 10 * time.Second
	// renewBefore is how long before its expiry an access token is replaced, so that it does not expire on the way to
	// the vendor.
	renewBefore = time.Minute
	// maxTokenLife bounds the lifetime that a vendor may state.
	maxTokenLife = 24 * time.Hour
)

// TokenError is a failure to get an access token.
type TokenError struct {
	Status int // of the answer, 0 without a complete one
	err    error
}

func (e *TokenError) Error() string { return "access token: " + e.err.Error() }

func (e *TokenError) Unwrap() error { return e.err }

// AccessTokens caches a service account's access token and renews it shortly before it expires. Concurrent callers
// share one request.
type AccessTokens struct {
	signer  jwt.Config
	client  *http.Client
	now     func() time.Time
	flights singleflight.Group

	mu      sync.Mutex
	token   string
	renewAt time.Time
}

// NewAccessTokens returns a cache and makes no request. now may be nil for time.Now.
func NewAccessTokens(a ServiceAccount, scope string, client *http.Client, now func() time.Time) *AccessTokens {
	if now == nil {
		now = time.Now
	}
	t := &AccessTokens{signer: a.signer, client: httpcall.Private(client), now: now}
	t.signer.Scopes = []string{scope}
	return t
}

// Get returns a valid token. The error is a [TokenError].
func (t *AccessTokens) Get(ctx context.Context) (string, error) {
	if token := t.cached(); token != "" {
		return token, nil
	}
	// Other callers wait for the same request, so it must outlive the one that started it.
	results := t.flights.DoChan("", func() (any, error) {
		if token := t.cached(); token != "" {
			return token, nil // renewed since the check above
		}
		return t.renew(context.WithoutCancel(ctx))
	})
	select {
	case result := <-results:
		token, _ := result.Val.(string)
		return token, result.Err
	case <-ctx.Done():
		return "", &TokenError{err: context.Cause(ctx)}
	}
}

func (t *AccessTokens) cached() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.now().Before(t.renewAt) {
		return ""
	}
	return t.token
}

// Discard forgets a token that the vendor refused, unless it was already replaced.
func (t *AccessTokens) Discard(token string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.token == token {
		t.renewAt = time.Time{}
	}
}

// renew fetches a token. Only the callers that wait for it use a token of unknown or very short life; it is not
// cached.
func (t *AccessTokens) renew(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	began := t.now()
	sent := &exchange{ctx: ctx, client: t.client}
	ctx = context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: sent})
	token, err := t.signer.TokenSource(ctx).Token()
	if err != nil || token.AccessToken == "" {
		if sent.err == nil && !httpcall.IsFailure(sent.status) {
			httpcall.CountFailure(t.client)
		}
		return "", sent.tokenError()
	}
	// Not token.Expiry, which the library computes with a clock other than ours.
	seconds, _ := token.Extra("expires_in").(float64) // 0 if the answer has none
	life := time.Duration(min(max(0, seconds), maxTokenLife.Seconds())) * time.Second
	t.mu.Lock()
	defer t.mu.Unlock()
	t.token, t.renewAt = token.AccessToken, began.Add(life-renewBefore)
	return token.AccessToken, nil
}

// exchange is a transport for one request of package oauth2, which ignores its context and keeps only the text of an
// error. It remembers the result of the request.
type exchange struct {
	ctx    context.Context
	client *http.Client
	status int
	err    error
}

// RoundTrip implements http.RoundTripper.
func (e *exchange) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if e.status, body, e.err = httpcall.Do(e.client, req.WithContext(e.ctx)); e.err != nil {
		return nil, e.err
	}
	return &http.Response{StatusCode: e.status, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(body)),
		Request: req}, nil
}

// tokenError explains why the request returned no token.
func (e *exchange) tokenError() error {
	switch {
	case e.err != nil:
		return &TokenError{0, e.err}
	case e.status != http.StatusOK:
		return &TokenError{e.status, fmt.Errorf("status %d", e.status)}
	default:
		return &TokenError{e.status, errors.New("the answer holds none")}
	}
}
