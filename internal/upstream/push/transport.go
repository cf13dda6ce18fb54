package push

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
)

// TransportB returns a transport for platform_b's service at baseURL, which requires HTTP/2: over TLS, or without TLS
// to a stand-in on this machine. It modifies base.
func TransportB(base *http.Transport, baseURL string) http.RoundTripper {
	if strings.HasPrefix(baseURL, "http:") {
		prior := base.Clone()
		prior.Protocols = new(http.Protocols)
		prior.Protocols.SetUnencryptedHTTP2(true)
		return &cleartext{http2: prior, http1: base}
	}
	base.ForceAttemptHTTP2 = true
	return base
}

// cleartext uses HTTP/2 without TLS. If a server has never answered in HTTP/2, it repeats the request in HTTP/1.1: the
// server may be a stand-in that supports nothing else.
type cleartext struct {
	http2, http1 http.RoundTripper
	answered     atomic.Bool // in HTTP/2
}

// RoundTrip implements http.RoundTripper.
func (c *cleartext) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.http2.RoundTrip(req)
	if err == nil {
		c.answered.Store(true)
		return resp, nil
	}
	if c.answered.Load() || req.Context().Err() != nil || errors.Is(err, syscall.ECONNREFUSED) || req.GetBody == nil {
		return nil, err
	}
	again := req.Clone(req.Context())
	if again.Body, err = req.GetBody(); err != nil {
		return nil, err
	}
	return c.http1.RoundTrip(again)
}
