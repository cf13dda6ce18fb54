// The S3 servers of these tests, the stand-in and a real one, behind a proxy that counts, delays and breaks requests.

package objectstore_test

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"cutroom/internal/sandbox/bucket"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/testkit/apitest"
)

const (
	testAccess = "test-access-key"
	testSecret = "test-secret-key-0123456789"
)

// backend is an S3 server behind a proxy that can count, delay and break requests.
type backend struct {
	server  *httptest.Server
	config  objectstore.BucketConfig
	mu      sync.Mutex
	fault   func(w http.ResponseWriter, r *http.Request) (handled bool)
	seen    []string // "METHOD path?query" of every request
	handler http.Handler
	standIn *bucket.Bucket // nil for a real server
}

// standInBackend starts the sandbox's stand-in, which checks signatures too.
func standInBackend(t *testing.T) *backend {
	t.Helper()
	standIn, err := bucket.New(bucket.Options{Name: "bucket", AccessKeyID: testAccess, SecretAccessKey: testSecret, Dir: t.TempDir()})
	must(t, err)
	b := newBackend(t, standIn)
	b.standIn = standIn
	b.config = objectstore.BucketConfig{
		Endpoint: b.server.URL, Bucket: "bucket", AccessKeyID: testAccess, SecretAccessKey: testSecret,
	}
	return b
}

// realBackend puts a proxy before the S3 server of CUTROOM_TEST_S3, and skips the test if there is none. The proxy
// keeps the client's Host header, because it is signed.
func realBackend(t *testing.T) *backend {
	t.Helper()
	value := os.Getenv("CUTROOM_TEST_S3")
	if value == "" {
		t.Skip("CUTROOM_TEST_S3 is not set; scripts/s3.sh run sets it")
	}
	u, err := url.Parse(value)
	if err != nil {
		t.Fatal("CUTROOM_TEST_S3 is not a URL")
	}
	target := &url.URL{Scheme: u.Scheme, Host: u.Host}
	b := newBackend(t, apitest.ChangingProxy(target))
	secret, _ := u.User.Password()
	b.config = objectstore.BucketConfig{
		Endpoint: b.server.URL, Region: u.Query().Get("region"), Bucket: strings.Trim(u.Path, "/"), AccessKeyID: u.User.Username(), SecretAccessKey: secret,
	}
	return b
}

func newBackend(t *testing.T, handler http.Handler) *backend {
	b := &backend{handler: handler}
	b.server = httptest.NewServer(http.HandlerFunc(b.serve))
	t.Cleanup(b.server.Close)
	return b
}

func (b *backend) serve(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	b.seen = append(b.seen, r.Method+" "+r.URL.RequestURI())
	fault := b.fault
	b.mu.Unlock()
	if fault != nil && fault(w, r) {
		return
	}
	b.handler.ServeHTTP(w, r)
}

// setFault passes every later request through f first.
func (b *backend) setFault(f func(w http.ResponseWriter, r *http.Request) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault = f
	b.seen = nil
}

// count returns how many requests since setFault start with prefix and contain part.
func (b *backend) count(prefix, part string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, s := range b.seen {
		if strings.HasPrefix(s, prefix) && strings.Contains(s, part) {
			n++
		}
	}
	return n
}

// bucket returns a client of the backend that retries quickly.
func (b *backend) bucket(t *testing.T, change func(*objectstore.BucketConfig)) *objectstore.Bucket {
	t.Helper()
	cfg := b.config
	cfg.PartSizeBytes = 5 << 20
	cfg.MaxBackoff = 5 * time.Millisecond
	cfg.StallTimeout = 5 * time.Second
	if change != nil {
		change(&cfg)
	}
	return objectstore.NewBucket(cfg)
}

// answer is a fault that answers with an error as S3 does.
func answer(status int, code string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>refused</Message></Error>`, code)
		return true
	}
}

// cutDownloads breaks the connection of every later download after that many bytes.
func (b *backend) cutDownloads(after int) {
	b.setFault(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet {
			b.handler.ServeHTTP(&cutAfter{ResponseWriter: w, left: after}, r)
		}
		return r.Method == http.MethodGet
	})
}

// eachBackend runs a test against every available S3 server.
func eachBackend(t *testing.T, test func(t *testing.T, b *backend)) {
	t.Run("stand-in", func(t *testing.T) { test(t, standInBackend(t)) })
	t.Run("real", func(t *testing.T) { test(t, realBackend(t)) })
}

// cutAfter is a ResponseWriter that breaks the connection after a number of body bytes.
type cutAfter struct {
	http.ResponseWriter
	left int
}

func (c *cutAfter) Write(p []byte) (int, error) {
	if len(p) >= c.left {
		c.ResponseWriter.Write(p[:c.left])
		c.ResponseWriter.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	c.left -= len(p)
	return c.ResponseWriter.Write(p)
}

// space returns a key prefix that no other test uses.
func space() string { return "test-" + strings.ToLower(rand.Text()[:12]) + "/" }
