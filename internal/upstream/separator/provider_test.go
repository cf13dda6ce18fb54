// The harness of this package: a provider on real or simulated connections that misbehaves as a test tells it.

package separator

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testKey   = "key-that-must-not-leak"
	testSig   = "sig-that-must-not-leak"
	testSpace = 7
)

// provider is a stand-in that speaks the provider's protocol on two real servers, and misbehaves as a test tells it to.
type provider struct {
	t       *testing.T
	api     *httptest.Server
	storage *httptest.Server
	dial    func(ctx context.Context, network, address string) (net.Conn, error) // unless nil, how clients connect

	mu       sync.Mutex
	faults   map[string]misbehaviour // by step
	hits     map[string]int          // requests that arrived, by step
	withKey  map[string]int          // of these, those with the key
	calls    []Call                  // as recorded by the client
	slept    []time.Duration
	uploaded []byte
	bodies   map[string]string // last JSON request body, by step
	logs     bytes.Buffer

	blobURL string // overrides the upload address
	project string // project answer
	links   map[string]string
	files   map[string][]byte // served by the storage, by path
}

// misbehaviour answers the n-th request of a step in place of the stand-in. If it returns false, the stand-in answers
// after all.
type misbehaviour func(w http.ResponseWriter, r *http.Request, n int) bool

const fullProject = `{"result":{"downloadInfo":{"hasOriginalVoiceOnly":true,"hasOriginalBackground":true,
	"hasOriginalSubBackground":true,"hasOriginalSpeakerAudioCollection":true},
	"downloadPathInfo":{"originalVoicePath":"/perso-storage/voice","originalBackgroundPath":"/perso-storage/background"}}}`

func newProvider(t *testing.T) *provider { return newProviderOn(t, httptest.NewServer) }

// inBubble runs a test with its own clock and a stand-in connected by pipes. Long silences take no time, and a busy
// machine cannot cause a silence.
func inBubble(t *testing.T, test func(t *testing.T, p *provider)) {
	synctest.Test(t, func(t *testing.T) {
		w := wires{}
		p := newProviderOn(t, w.serve)
		p.dial = w.dial
		test(t, p)
	})
}

// wires are listeners without the kernel's network, by address.
type wires map[string]wire

type wire struct {
	conns chan net.Conn
	open  context.Context
	close context.CancelFunc
	at    *net.TCPAddr
}

func (w wires) serve(h http.Handler) *httptest.Server {
	l := wire{conns: make(chan net.Conn), at: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1 + len(w)}}
	l.open, l.close = context.WithCancel(context.Background())
	w[l.at.String()] = l
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: h}}
	s.Start()
	return s
}

func (w wires) dial(ctx context.Context, _, address string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case w[address].conns <- far:
		return near, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (l wire) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.open.Done():
		return nil, net.ErrClosed
	}
}

func (l wire) Close() error   { l.close(); return nil }
func (l wire) Addr() net.Addr { return l.at }

func newProviderOn(t *testing.T, serve func(http.Handler) *httptest.Server) *provider {
	p := &provider{t: t, faults: map[string]misbehaviour{}, hits: map[string]int{},
		withKey: map[string]int{}, bodies: map[string]string{}, project: fullProject}
	p.links = map[string]string{
		targetSpeakers.name:      `{"result":{"audioFile":{"voiceAudioDownloadLink":"/perso-storage/speakers.tar?sig=` + testSig + `"}}}`,
		targetSubBackground.name: `{"result":{"audioFile":{"originalSubBackgroundDownloadLink":"/perso-storage/sub?sig=` + testSig + `"}}}`,
	}
	p.files = map[string][]byte{
		"/perso-storage/voice":        wav("voice"),
		"/perso-storage/background":   wav("background"),
		"/perso-storage/sub":          wav("sub"),
		"/perso-storage/speakers.tar": tarOf(t, file("Speaker 10.wav", wav("ten")), file("Speaker 2.wav", wav("two"))),
	}
	api := http.NewServeMux()
	api.HandleFunc("GET /file/api/upload/sas-token", p.step("upload-token", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"blobSasUrl":"%s?sig=%s","expirationDatetime":"2030-01-01T00:00:00Z"}`, cmp.Or(p.blobURL, p.storage.URL+"/blob/a"), testSig)
	}))
	api.HandleFunc("PUT /file/api/upload/audio", p.step("register", sends(`{"seq":"41","durationMs":1000}`)))
	const projects = "/video-translator/api/v1/projects/"
	api.HandleFunc("POST "+projects+"spaces/7/audio-separation", p.step("audio-separation",
		sends(`{"result":{"startGenerateProjectIdList":[99]}}`)))
	api.HandleFunc("GET "+projects+"99/space/7/progress", p.step("progress",
		sends(`{"result":{"projectSeq":99,"progress":42,"progressReason":"Transcribing","hasFailed":false}}`)))
	api.HandleFunc("GET "+projects+"99/spaces/7", p.step("project", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, p.project)
	}))
	api.HandleFunc("GET "+projects+"99/spaces/7/download", p.step("download", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, p.links[r.URL.Query().Get("target")])
	}))
	api.HandleFunc("/", p.step("file", p.serveFile))
	storage := http.NewServeMux()
	storage.HandleFunc("PUT /blob/a", p.step("upload", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
	}))
	storage.HandleFunc("/", p.step("file", p.serveFile))
	p.api, p.storage = serve(api), serve(storage)
	t.Cleanup(p.api.Close)
	t.Cleanup(p.storage.Close)
	return p
}

// sends compresses its answer unless the client forbids it, as any server may.
func sends(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "gzip" {
			io.WriteString(w, body)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		w.Write(zipped([]byte(body)))
	}
}

func (p *provider) serveFile(w http.ResponseWriter, r *http.Request) {
	if got := r.Header.Get("Accept-Encoding"); got != "identity" {
		p.t.Errorf("a file was asked for with Accept-Encoding %q", got)
	}
	content, ok := p.files[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Write(content)
}

// step counts a request, lets a fault answer it, and checks the rules for every request of the protocol.
func (p *provider) step(name string, answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.hits[name]++
		n := p.hits[name]
		switch r.Header.Get("XP-API-KEY") {
		case testKey:
			p.withKey[name]++
		case "":
		default:
			p.t.Errorf("%s: unknown key", name)
		}
		f := p.faults[name]
		p.mu.Unlock()
		if f != nil && f(w, r, n) {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client gave up
		}
		p.mu.Lock()
		if name == "upload" {
			p.uploaded = body
			if r.Header.Get("x-ms-blob-type") != "BlockBlob" || r.ContentLength != int64(len(body)) || len(r.TransferEncoding) > 0 {
				p.t.Errorf("upload: headers %v, length %d, encoding %v", r.Header, r.ContentLength, r.TransferEncoding)
			}
		} else {
			p.bodies[name] = string(body)
		}
		p.mu.Unlock()
		answer(w, r)
	}
}

// client returns a client of the stand-in whose pauses take no time.
func (p *provider) client(change ...func(*Config)) *Client {
	cfg := Config{
		BaseURL: p.api.URL, StorageBaseURL: p.storage.URL, APIKey: testKey, SpaceID: testSpace,
		ConnectTimeout: time.Minute, RequestTimeout: time.Minute, SocketTimeout: 10 * time.Second,
		Record: func(c Call) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.calls = append(p.calls, c)
		},
		Log: slog.New(slog.NewTextHandler(&lockedWriter{mu: &p.mu, w: &p.logs}, nil)),
		Sleep: func(ctx context.Context, d time.Duration) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.slept = append(p.slept, d)
			return context.Cause(ctx)
		},
	}
	for _, f := range change {
		f(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	if p.dial != nil {
		c.transport.DialContext = p.dial
	}
	return c
}

// recorded returns how many calls of that endpoint the client recorded, and how many of them as successes.
func (p *provider) recorded(endpoint string) (all, good int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		if c.Endpoint == endpoint {
			all++
			if c.Success {
				good++
			}
		}
	}
	return all, good
}

// noSecrets fails the test if err or the log contains a secret.
func (p *provider) noSecrets(err error) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, secret := range []string{testKey, testSig, "sig="} {
		if strings.Contains(p.logs.String(), secret) || strings.Contains(fmt.Sprintf("%+v", err), secret) {
			p.t.Errorf("%q leaked: error %v, log %s", secret, err, p.logs.String())
		}
	}
}

func (p *provider) source(content []byte) string {
	path := filepath.Join(p.t.TempDir(), "source.wav")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		p.t.Fatal(err)
	}
	return path
}

type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// wav is content that sniffs as a WAV file; tag makes it distinct.
func wav(tag string) []byte { return []byte("RIFF\x00\x00\x00\x00WAVEfmt " + tag) }

// The faults.

func answers(status int, header ...string) misbehaviour {
	return func(w http.ResponseWriter, r *http.Request, _ int) bool {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		return true
	}
}

func says(body string) misbehaviour {
	return func(w http.ResponseWriter, r *http.Request, _ int) bool {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, body)
		return true
	}
}

func closesAtOnce(http.ResponseWriter, *http.Request, int) bool { panic(http.ErrAbortHandler) }

func closesAfterBody(_ http.ResponseWriter, r *http.Request, _ int) bool {
	io.Copy(io.Discard, r.Body)
	panic(http.ErrAbortHandler)
}

func closesInAnswer(w http.ResponseWriter, r *http.Request, _ int) bool {
	io.Copy(io.Discard, r.Body)
	io.WriteString(w, `{"result":`)
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

// promises announces a length and sends less.
func promises(length string) misbehaviour {
	return func(w http.ResponseWriter, r *http.Request, _ int) bool {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Length", length)
		w.Write(wav("short"))
		return true
	}
}

func stalls(_ http.ResponseWriter, r *http.Request, _ int) bool {
	io.Copy(io.Discard, r.Body)
	<-r.Context().Done() // the client gave up
	return true
}

func stallsInAnswer(w http.ResponseWriter, r *http.Request, n int) bool {
	io.WriteString(w, "{")
	w.(http.Flusher).Flush()
	return stalls(w, r, n)
}

// endless sends zeros until the client disconnects.
func endless(w http.ResponseWriter, r *http.Request, _ int) bool {
	io.Copy(io.Discard, r.Body)
	for chunk := make([]byte, 64<<10); ; {
		if _, err := w.Write(chunk); err != nil {
			return true
		}
	}
}

// always lets every call be made.
func always(context.Context) error { return nil }
