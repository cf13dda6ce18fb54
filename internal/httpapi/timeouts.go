package httpapi

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// timeouts say when a slow client is cut off.
type timeouts struct {
	// bodySilence is how long a client may send nothing in the middle of a body.
	bodySilence time.Duration
	// minUploadRate is the least average speed of a body, in bytes a second, once
	// it has had uploadGrace.
	minUploadRate int64
	uploadGrace   time.Duration
	// minDownloadRate is the least speed at which an answer is taken, in bytes a
	// second, and downloadGrace how far a client may be behind it: links are lost
	// and found again, and a client's kernel takes bytes in large pieces. It is
	// longer than bodySilence, which may pass between an answer and its flush,
	// while the server waits for the rest of a body that nobody read.
	minDownloadRate int64
	downloadGrace   time.Duration
	// lingerSilence and linger bound how long the rest of a body is taken that the
	// answer did not need: between two reads, and in all.
	lingerSilence, linger time.Duration
}

// defaultTimeouts are the service's: a phone on a poor connection is faster, and a
// client that drips bytes to hold a connection is not.
var defaultTimeouts = timeouts{bodySilence: 30 * time.Second, minUploadRate: 2 << 10, uploadGrace: time.Minute,
	minDownloadRate: 8 << 10, downloadGrace: time.Minute, lingerSilence: 5 * time.Second, linger: 30 * time.Second}

// timeFor is how long n bytes take at a rate of bytes a second.
func timeFor(rate int64, n int) time.Duration {
	return time.Duration(n) * time.Second / time.Duration(rate)
}

// renew gives the client its time to take the n bytes that are written next.
func (w *recorder) renew(n int) {
	// A connection without deadlines (a test's recorder) has no slow peer.
	_ = w.control.SetWriteDeadline(time.Now().Add(w.timeouts.downloadGrace - w.behind + timeFor(w.timeouts.minDownloadRate, n)))
}

// took keeps account of how far the client is behind the least speed. Only
// writing counts: the time that we take for the next bytes is ours.
func (w *recorder) took(n int, began time.Time) {
	w.behind = max(0, w.behind+time.Since(began)-timeFor(w.timeouts.minDownloadRate, n))
}

// timedBody moves the connection's read deadline along while bytes arrive,
// so that a silent or dripping client is cut off however long uploads may take.
type timedBody struct {
	io.ReadCloser
	timeouts
	control *http.ResponseController
	started time.Time
	read    int64
	over    bool // there is nothing more to read
}

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
		// The body is here. What comes next on this connection is another
		// request's matter, and must not end this one by a time-out.
		_ = p.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// withBodyTimeouts guards the body of a request. A handler may answer without
// reading it, and the server then reads what is left of a short body before it
// writes the answer: that, too, has a deadline from the start.
func withBodyTimeouts(w *recorder, r *http.Request) *http.Request {
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	// What an earlier request on this connection left behind would fail the
	// interim answer to "Expect: 100-continue".
	_ = w.control.SetWriteDeadline(time.Time{})
	_ = w.control.SetReadDeadline(time.Now().Add(w.timeouts.bodySilence))
	r.Body = &timedBody{ReadCloser: r.Body, timeouts: w.timeouts, control: w.control, started: time.Now()}
	return r
}

// linger takes what the client still sends of a body that was answered before it
// was read. Many clients send all before they listen: they would find a connection
// that was reset in place of why their upload is refused. What stops comes to an
// end at once.
func (w *recorder) linger(r *http.Request, stopping <-chan struct{}) {
	body, ok := r.Body.(*timedBody)
	// Who waits to be told to go on will send nothing.
	waits := ok && body.read == 0 && r.Header.Get("Expect") != ""
	if !ok || body.over || waits || w.control.Flush() != nil {
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
		if _, err := io.CopyN(io.Discard, body.ReadCloser, 8<<10); err != nil {
			return
		}
	}
}
