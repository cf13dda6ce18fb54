package httpapi

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// bodySilence is how long a client may send nothing in the middle of a body.
const bodySilence = 30 * time.Second

// minUploadRate is the least average speed of a body, in bytes a second, once
// it has had a minute: a phone on a poor connection is faster, and a client
// that drips bytes to hold a connection is not.
const (
	minUploadRate = 2 << 10
	uploadGrace   = time.Minute
)

// writeSilence is how long a client may take over each piece of an answer. Files
// are copied in pieces of 32 KiB.
const writeSilence = time.Minute

// patience renews the time that the client has to take what is written next.
// Small answers are flushed after the handler, under the deadline of the last
// write.
func (w *recorder) patience() {
	// A connection without deadlines (a test's recorder) has no slow peer.
	_ = w.control.SetWriteDeadline(time.Now().Add(writeSilence))
}

// patientBody moves the connection's read deadline along while bytes arrive,
// so that a silent or dripping client is cut off however long uploads may take.
type patientBody struct {
	io.ReadCloser
	control *http.ResponseController
	started time.Time
	read    int64
}

func (p *patientBody) Read(b []byte) (int, error) {
	deadline := time.Now().Add(bodySilence)
	latest := p.started.Add(uploadGrace + time.Duration(p.read/minUploadRate)*time.Second)
	if latest.Before(deadline) {
		deadline = latest
	}
	_ = p.control.SetReadDeadline(deadline)
	n, err := p.ReadCloser.Read(b)
	p.read += int64(n)
	if errors.Is(err, io.EOF) {
		// The body is here. What comes next on this connection is another
		// request's matter, and must not end this one by a time-out.
		_ = p.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// withPatience guards the body of a request. A handler may answer without
// reading it, and the server then reads what is left of a short body before it
// writes the answer: that, too, has a deadline from the start.
func withPatience(w *recorder, r *http.Request) *http.Request {
	// What an earlier request on this connection left behind would fail the
	// interim answer to "Expect: 100-continue".
	_ = w.control.SetWriteDeadline(time.Time{})
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	_ = w.control.SetReadDeadline(time.Now().Add(bodySilence))
	r.Body = &patientBody{ReadCloser: r.Body, control: w.control, started: time.Now()}
	return r
}
