// Builds one HTTP request of the client: JSON, a raw body, or a multipart form with files.

package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"os"
	"strings"
)

// Request is one call of the service. At most one of JSON, Raw, File and Form is set.
type Request struct {
	Method string // default GET
	Path   string // with the query, e.g. /api/v2/credits/cost?durationMs=1
	Token  string // access token; "" sends the client's
	Header http.Header

	JSON any    // marshalled as application/json
	Raw  string // sent unchanged, as application/json unless Header sets another type
	File string // path of a file that is the body
	Form []Part // multipart/form-data

	// Sent, unless nil, is told which fraction of the body has been sent.
	Sent func(fraction float64)
}

// Part is one part of a multipart body, from Text, Bytes or the file at Path.
type Part struct {
	Name     string
	Text     string
	Bytes    []byte
	Path     string
	Filename string // "" for text parts; default of a media part: Name
	Type     string // Content-Type; "" sends none for text, application/octet-stream for media
	Unquoted bool   // name=video instead of name="video", as some clients send it
}

// Media reports whether the part is media rather than text.
func (p Part) Media() bool { return p.Bytes != nil || p.Path != "" }

// Name returns the method and the path without the query, which may contain a token.
func (r Request) Name() string {
	path, _, _ := strings.Cut(r.Path, "?")
	return cmp.Or(r.Method, http.MethodGet) + " " + path
}

// Build returns the request to the server at base.
func (r Request) Build(ctx context.Context, base string) (*http.Request, error) {
	content, contentType, err := r.body()
	if err != nil {
		return nil, err
	}
	// With a bytes.Reader, net/http can repeat a request that a closing connection did not accept.
	req, err := http.NewRequestWithContext(ctx, cmp.Or(r.Method, http.MethodGet), base+r.Path, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	if r.Sent != nil {
		req.Body = io.NopCloser(io.TeeReader(req.Body, &Counter{Total: req.ContentLength, Report: r.Sent}))
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if r.Token != "" {
		req.Header.Set("Authorization", "Bearer "+r.Token)
	}
	for name, values := range r.Header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	return req, nil
}

func (r Request) body() (content []byte, contentType string, err error) {
	switch {
	case r.JSON != nil:
		content, err = json.Marshal(r.JSON)
		return content, "application/json", err
	case r.Raw != "":
		return []byte(r.Raw), "application/json", nil
	case r.File != "":
		content, err = os.ReadFile(r.File)
		return content, "", err
	case r.Form != nil:
		return encode(r.Form)
	}
	return nil, "", nil
}

// encode returns a form as a multipart body.
func encode(form []Part) (content []byte, contentType string, err error) {
	var all bytes.Buffer
	w := multipart.NewWriter(&all)
	for _, p := range form {
		content := p.Bytes
		switch {
		case p.Path != "":
			content, err = os.ReadFile(p.Path)
		case content == nil:
			content = []byte(p.Text)
		}
		if err != nil {
			return nil, "", err
		}
		part, err := w.CreatePart(p.header())
		if err != nil {
			return nil, "", err
		}
		if _, err := part.Write(content); err != nil {
			return nil, "", err
		}
	}
	err = w.Close()
	return all.Bytes(), w.FormDataContentType(), err
}

func (p Part) header() textproto.MIMEHeader {
	filename, contentType := p.Filename, p.Type
	if p.Media() {
		filename, contentType = cmp.Or(filename, p.Name), cmp.Or(contentType, "application/octet-stream")
	}
	disposition := fmt.Sprintf(`form-data; name=%q`, p.Name)
	if p.Unquoted {
		disposition = "form-data; name=" + p.Name
	}
	if filename != "" {
		disposition += fmt.Sprintf(`; filename=%q`, filename)
	}
	h := textproto.MIMEHeader{"Content-Disposition": {disposition}}
	if contentType != "" {
		h.Set("Content-Type", contentType)
	}
	return h
}

// Counter reports to Report the fraction of Total bytes that have been written to it.
type Counter struct {
	Total  int64
	Report func(fraction float64) // may be nil
	done   int64
}

// Write implements io.Writer.
func (c *Counter) Write(p []byte) (int, error) {
	c.done += int64(len(p))
	if c.Total > 0 && c.Report != nil {
		c.Report(float64(c.done) / float64(c.Total))
	}
	return len(p), nil
}
