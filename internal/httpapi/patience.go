package httpapi

import (
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
	// A connection without deadlines (a test's recorder) has no slow peer.
	_ = p.control.SetReadDeadline(deadline)
	n, err := p.ReadCloser.Read(b)
	p.read += int64(n)
	if err != nil {
		// What comes next on this connection is another request's matter.
		_ = p.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// withPatience guards the body of a request.
func withPatience(w http.ResponseWriter, r *http.Request) *http.Request {
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	c := *r
	c.Body = &patientBody{ReadCloser: r.Body, control: http.NewResponseController(w), started: time.Now()}
	return &c
}
