package test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"cutroom/internal/apitest"
	"cutroom/internal/sandbox/bucket"
)

// flakyStore is an object store behind a proxy that can fail requests. The store is the S3 server of
// CUTROOM_TEST_S3 if that is set, and otherwise the stand-in.
type flakyStore struct {
	*httptest.Server
	bucket, access, secret string
	handler                http.Handler

	mu     sync.Mutex
	faults []*storeFault
	seen   []string // "METHOD key" of every request
}

// storeFault changes the result of requests.
type storeFault struct {
	method   string // "" matches all methods
	contains string // part of the path
	times    int    // number of requests; 0 means all
	how      func(f *flakyStore, w http.ResponseWriter, r *http.Request)
	hits     int
}

func newFlakyStore(t testing.TB) *flakyStore {
	t.Helper()
	f := &flakyStore{bucket: "bucket", access: "flaky-access-key", secret: "flaky-secret-0123456789abcdef"}
	real, err := apitest.RealBucket(t)
	if err != nil {
		t.Fatal(err)
	}
	if real != nil {
		u, err := url.Parse(real["OBJECT_STORE_ENDPOINT"])
		if err != nil {
			t.Fatal(err)
		}
		f.bucket, f.access, f.secret = real["OBJECT_STORE_BUCKET"], real["OBJECT_STORE_ACCESS_KEY_ID"], real["OBJECT_STORE_SECRET_ACCESS_KEY"]
		f.handler = &httputil.ReverseProxy{
			Rewrite: func(p *httputil.ProxyRequest) {
				p.SetURL(u)
				p.Out.Host = p.In.Host // the signature covers the host
			},
			ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		}
	} else if f.handler, err = bucket.New(bucket.Options{Name: f.bucket, AccessKeyID: f.access, SecretAccessKey: f.secret,
		Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	return f
}

// env returns the options for a service that uses the store.
func (f *flakyStore) env() []apitest.Option {
	return []apitest.Option{apitest.Bucket(false), // the service must not bypass the proxy
		apitest.Env("OBJECT_STORE_ENDPOINT", f.URL), apitest.Env("OBJECT_STORE_BUCKET", f.bucket),
		apitest.Env("OBJECT_STORE_ACCESS_KEY_ID", f.access), apitest.Env("OBJECT_STORE_SECRET_ACCESS_KEY", f.secret),
		apitest.Env("OBJECT_STORE_ACCOUNT_ID", strings.Repeat("0", 32))}
}

func (f *flakyStore) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.seen = append(f.seen, r.Method+" "+strings.TrimPrefix(r.URL.Path, "/"+f.bucket+"/"))
	var hit *storeFault
	for _, fault := range f.faults {
		if (fault.method == "" || fault.method == r.Method) && strings.Contains(r.URL.Path, fault.contains) &&
			(fault.times == 0 || fault.hits < fault.times) {
			hit = fault
			hit.hits++
			break
		}
	}
	f.mu.Unlock()
	if hit != nil {
		hit.how(f, w, r)
		return
	}
	f.handler.ServeHTTP(w, r)
}

// addFault adds a fault.
func (f *flakyStore) addFault(method, contains string, times int, how func(*flakyStore, http.ResponseWriter, *http.Request)) *storeFault {
	fault := &storeFault{method: method, contains: contains, times: times, how: how}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, fault)
	return fault
}

// heal removes all faults.
func (f *flakyStore) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = nil
}

// hits returns the number of requests that a fault has affected.
func (f *flakyStore) hits(fault *storeFault) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fault.hits
}

// down responds like an overloaded store.
func down(_ *flakyStore, w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // fails if the client has disconnected
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = io.WriteString(w, "<Error><Code>SlowDown</Code><Message>"+storeSecretText+"</Message></Error>")
}

// storeSecretText must never reach a client.
const storeSecretText = "internal text of the object store"

// cutUpload breaks the connection in the middle of the request's body.
func cutUpload(_ *flakyStore, _ http.ResponseWriter, r *http.Request) {
	_, _ = io.CopyN(io.Discard, r.Body, max(1, r.ContentLength/2))
	panic(http.ErrAbortHandler)
}

// cutDownload breaks the connection after n bytes of the response.
func cutDownload(n int) func(*flakyStore, http.ResponseWriter, *http.Request) {
	return func(f *flakyStore, w http.ResponseWriter, r *http.Request) {
		f.handler.ServeHTTP(&cutWriter{ResponseWriter: w, left: n}, r)
	}
}

type cutWriter struct {
	http.ResponseWriter
	left int
}

func (c *cutWriter) Write(p []byte) (int, error) {
	if len(p) < c.left {
		c.left -= len(p)
		return c.ResponseWriter.Write(p)
	}
	_, _ = c.ResponseWriter.Write(p[:c.left])
	_ = http.NewResponseController(c.ResponseWriter).Flush()
	panic(http.ErrAbortHandler)
}

// slow limits the transfer rate in each direction.
func slow(bytesPerSecond int) func(*flakyStore, http.ResponseWriter, *http.Request) {
	return func(f *flakyStore, w http.ResponseWriter, r *http.Request) {
		r.Body = &slowBody{ReadCloser: r.Body, perSecond: bytesPerSecond}
		f.handler.ServeHTTP(&slowWriter{ResponseWriter: w, perSecond: bytesPerSecond}, r)
	}
}

type slowBody struct {
	io.ReadCloser
	perSecond int
}

func (b *slowBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), 16<<10)])
	time.Sleep(time.Duration(n) * time.Second / time.Duration(b.perSecond))
	return n, err
}

type slowWriter struct {
	http.ResponseWriter
	perSecond int
}

func (w *slowWriter) Write(p []byte) (int, error) {
	total := 0
	for len(p) > 0 {
		n, err := w.ResponseWriter.Write(p[:min(len(p), 16<<10)])
		time.Sleep(time.Duration(n) * time.Second / time.Duration(w.perSecond))
		if total += n; err != nil {
			return total, err
		}
		p = p[n:]
	}
	return total, nil
}
