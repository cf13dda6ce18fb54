package objectstore_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"cutroom/internal/storage/objectstore"
)

// roundTrips is a transport that passes the number of each request.
type roundTrips struct {
	n  int
	do func(n int, req *http.Request) (*http.Response, error)
}

func (r *roundTrips) RoundTrip(req *http.Request) (*http.Response, error) {
	r.n++
	return r.do(r.n, req)
}

// Another try would delay the error until only the caller's deadline is reported.
func TestExpiredCertificateIsNamedAtOnce(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	transport := server.Client().Transport.(*http.Transport)
	transport.TLSClientConfig.Time = func() time.Time { return server.Certificate().NotAfter.Add(time.Hour) }
	counted := &roundTrips{do: func(_ int, req *http.Request) (*http.Response, error) { return transport.RoundTrip(req) }}
	bucket := objectstore.NewBucket(objectstore.BucketConfig{Endpoint: server.URL, Bucket: "b", AccessKeyID: "access-key", SecretAccessKey: "secret-key",
		HTTP: &http.Client{Transport: counted}})
	src := file(t, []byte("x"))
	for name, call := range map[string]func() error{
		"put":  func() error { return bucket.Put(t.Context(), "k", src, "") },
		"stat": func() error { _, err := bucket.Stat(t.Context(), "k"); return err },
	} {
		counted.n = 0
		err := call()
		if !errors.Is(err, objectstore.ErrUnavailable) || !strings.Contains(err.Error(), "x509: certificate has expired") || counted.n != 1 {
			t.Errorf("%s: %v after %d tries", name, err, counted.n)
		}
	}
}

func TestCallThatRunsOutOfTimeNamesItsLastTry(t *testing.T) {
	for want, first := range map[string]func() (*http.Response, error){
		"connection refused": func() (*http.Response, error) { return nil, syscall.ECONNREFUSED },
		"store answered 503": func() (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: http.NoBody}, nil
		},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		timedOut := errors.New("timed out")
		bucket := objectstore.NewBucket(objectstore.BucketConfig{Endpoint: "http://127.0.0.1", Bucket: "b", AccessKeyID: "access-key", SecretAccessKey: "secret-key",
			MaxBackoff: time.Millisecond, HTTP: &http.Client{Transport: &roundTrips{do: func(n int, req *http.Request) (*http.Response, error) {
				if n == 1 {
					return first()
				}
				cancel(timedOut)
				return nil, req.Context().Err()
			}}}})
		err := bucket.Put(ctx, "k", file(t, []byte("x")), "")
		if !errors.Is(err, timedOut) || !strings.Contains(err.Error(), "last try: "+want) || strings.Contains(err.Error(), "127.0.0.1") {
			t.Errorf("%v, want the last try: %s", err, want)
		}
	}
}
