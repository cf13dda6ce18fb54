package push

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
)

// TransportB makes a transport speak to platform_b's service at baseURL: HTTP/2, over
// TLS with rootsPEM trusted beside the system's roots, or without TLS to a stand-in
// on this machine. It changes base, which must be the caller's own.
func TransportB(base *http.Transport, baseURL string, rootsPEM []byte) http.RoundTripper {
	if strings.HasPrefix(baseURL, "http:") {
		prior := base.Clone()
		prior.Protocols = new(http.Protocols)
		prior.Protocols.SetUnencryptedHTTP2(true)
		return &cleartext{http2: prior, http1: base}
	}
	base.ForceAttemptHTTP2 = true
	if len(rootsPEM) > 0 {
		roots, err := x509.SystemCertPool()
		if err != nil {
			roots = x509.NewCertPool()
		}
		roots.AppendCertsFromPEM(rootsPEM)
		base.TLSClientConfig = &tls.Config{RootCAs: roots}
	}
	return base
}

// cleartext speaks HTTP/2 without TLS, and HTTP/1.1 to a server that does not
// understand it.
type cleartext struct {
	http2, http1 http.RoundTripper
	old          atomic.Bool // the server answered in HTTP/1.1
}

// RoundTrip implements http.RoundTripper.
func (c *cleartext) RoundTrip(req *http.Request) (*http.Response, error) {
	if c.old.Load() {
		return c.http1.RoundTrip(req)
	}
	resp, err := c.http2.RoundTrip(req)
	if err == nil || req.Context().Err() != nil || errors.Is(err, syscall.ECONNREFUSED) || req.GetBody == nil {
		return resp, err
	}
	again := req.Clone(req.Context())
	if again.Body, err = req.GetBody(); err != nil {
		return nil, err
	}
	resp, err = c.http1.RoundTrip(again)
	c.old.Store(err == nil)
	return resp, err
}
