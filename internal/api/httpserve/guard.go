// Time-outs for single requests that follow the client's progress: a long upload may go on, and a client that sends or
// reads too slowly is cut off.

package httpserve

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// timeouts say when to cut off a slow client.
type timeouts struct {
	// bodySilence is how long a client may send nothing in the middle of a body.
	bodySilence time.Duration
	// minUploadRate is the minimum average rate of a body, in bytes a second, after uploadGrace.
	minUploadRate int64
	uploadGrace   time.Duration
	// minDownloadRate is the minimum rate at which a client must read, in bytes a second. downloadGrace is how far it
	// may fall behind: links drop and come back, and a client's kernel takes bytes in large pieces. downloadGrace is
	// longer than bodySilence, because that much time may pass between an answer and its flush while the server waits
	// for the rest of an unread body.
	minDownloadRate int64
	downloadGrace   time.Duration
	// lingerSilence and linger bound how long the server reads the rest of a body after it has answered: between two
	// reads, and in total.
	lingerSilence, linger time.Duration
}

// defaultTimeouts are the service's. A phone on a poor connection stays within them; a client that drips bytes to hold
// a connection does not.
var defaultTimeouts = timeouts{bodySilence: 30 * time.Second, minUploadRate: 2 << 10, uploadGrace: time.Minute,
	minDownloadRate: 8 << 10, downloadGrace: time.Minute, lingerSilence: 5 * time.Second, linger: 30 * time.Second}

// Guard cuts off clients that are slow to send a body or to read the answer of next. If next answers before it has read
// the body, Guard reads the rest for a while, until stopping is closed. stopping may be nil.
func Guard(next http.Handler, stopping <-chan struct{}) http.Handler {
	return guard{next, stopping, defaultTimeouts}
}

type guard struct {
	next     http.Handler
	stopping <-chan struct{}
	timeouts timeouts
}

// ServeHTTP guards one request.
func (g guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	paced := &pacedWriter{ResponseWriter: w, timeouts: g.timeouts, control: http.NewResponseController(w)}
	withBodyTimeouts(paced, r)
	defer paced.renew(0) // the server flushes the end of the answer after this
	g.next.ServeHTTP(paced, r)
	paced.renew(0)
	paced.linger(g.stopping)
}

// pacedWriter gives each write a deadline.
type pacedWriter struct {
	http.ResponseWriter
	timeouts timeouts
	control  *http.ResponseController
	body     *timedBody    // nil without a body
	behind   time.Duration // how far the client is behind the minimum rate
}

// WriteHeader announces that the connection will close if the answer comes before a long body is read. Otherwise
// net/http holds the answer back until the client has sent 256 KiB.
func (w *pacedWriter) WriteHeader(status int) {
	if w.body != nil && w.body.long() && status >= http.StatusOK {
		w.Header().Set("Connection", "close")
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write writes, and measures how long the client takes.
func (w *pacedWriter) Write(b []byte) (int, error) {
	w.renew(len(b))
	began := time.Now()
	n, err := w.ResponseWriter.Write(b)
	w.took(n, began)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// timeFor returns how long n bytes take at a rate in bytes a second.
func timeFor(rate int64, n int) time.Duration {
	return time.Duration(n) * time.Second / time.Duration(rate)
}

// renew sets the write deadline for the next n bytes.
func (w *pacedWriter) renew(n int) {
	// A connection without deadlines (a test's recorder) has no slow client.
	_ = w.control.SetWriteDeadline(time.Now().Add(w.timeouts.downloadGrace - w.behind + timeFor(w.timeouts.minDownloadRate, n)))
}

// took updates how far the client is behind the minimum rate. Only the time spent writing counts, not the time that the
// handler takes to produce the next bytes.
func (w *pacedWriter) took(n int, began time.Time) {
	w.behind = max(0, w.behind+time.Since(began)-timeFor(w.timeouts.minDownloadRate, n))
}

// timedBody extends the connection's read deadline while bytes arrive: uploads may take long, but a silent or
// dripping client is cut off.
type timedBody struct {
	io.ReadCloser
	timeouts
	control *http.ResponseController
	started time.Time
	length  int64 // -1 if the client does not say
	waits   bool  // the client asks for "100 Continue" first
	read    int64
	over    bool // the body has been read to its end, or reading failed
}

// long reports whether the server must not wait for the rest of the body before it answers. The rest of a short body is
// on its way.
func (p *timedBody) long() bool {
	return !p.over && (p.unasked() || p.length < 0 || p.length-p.read > 64<<10)
}

// unasked reports whether the client still waits for "100 Continue".
func (p *timedBody) unasked() bool { return p.waits && p.read == 0 }

func (p *timedBody) Read(b []byte) (int, error) {
	deadline := time.Now().Add(p.bodySilence)
	latest := p.started.Add(p.uploadGrace + time.Duration(p.read/p.minUploadRate)*time.Second)
	if latest.Before(deadline) {
		deadline = latest
	}
	_ = p.control.SetReadDeadline(deadline)
	n, err := p.ReadCloser.Read(b)
	p.read += int64(n)
	p.over = p.over || err != nil
	if errors.Is(err, io.EOF) {
		// The body is complete. A pause on this connection must no longer end this request by a time-out.
		_ = p.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// withBodyTimeouts guards the body of a request. If a handler answers without reading a short body, the server reads
// the rest before it writes the answer, so there is a deadline from the start.
func withBodyTimeouts(w *pacedWriter, r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	// The write deadline of the previous request on this connection would fail the interim answer to "Expect:
	// 100-continue".
	_ = w.control.SetWriteDeadline(time.Time{})
	_ = w.control.SetReadDeadline(time.Now().Add(w.timeouts.bodySilence))
	w.body = &timedBody{ReadCloser: r.Body, timeouts: w.timeouts, control: w.control, started: time.Now(),
		length: r.ContentLength, waits: r.Header.Get("Expect") != ""}
	r.Body = w.body
}

// linger reads what the client still sends of a body that was answered early. Many clients send everything before they
// read the answer. Without linger they would find a reset connection instead of the reason for the refusal.
func (w *pacedWriter) linger(stopping <-chan struct{}) {
	if w.body == nil || w.body.over || w.body.unasked() || w.control.Flush() != nil {
		return
	}
	defer func() { _ = w.control.SetReadDeadline(time.Time{}) }()
	for end := time.Now().Add(w.timeouts.linger); time.Now().Before(end); {
		select {
		case <-stopping:
			return
		default:
		}
		_ = w.control.SetReadDeadline(time.Now().Add(w.timeouts.lingerSilence))
		if _, err := io.CopyN(io.Discard, w.body.ReadCloser, 8<<10); err != nil {
			return
		}
	}
}
