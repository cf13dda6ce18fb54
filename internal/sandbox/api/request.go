package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
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

// Media reports whether the part is media, and not text.
func (p Part) Media() bool { return p.Bytes != nil || p.Path != "" }

// Name returns the method and the path without the query, which may contain a token.
func (r Request) Name() string {
	path, _, _ := strings.Cut(r.Path, "?")
	return cmp.Or(r.Method, http.MethodGet) + " " + path
}

// Build returns the request to the server at base.
func (r Request) Build(ctx context.Context, base string) (*http.Request, error) {
	pieces, contentType, err := r.body()
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, cmp.Or(r.Method, http.MethodGet), base+r.Path, http.NoBody)
	if err != nil {
		return nil, err
	}
	if len(pieces) > 0 {
		if req.ContentLength, err = size(pieces); err != nil {
			return nil, err
		}
		// With GetBody, net/http repeats a request that a closing connection did not take.
		req.GetBody = func() (io.ReadCloser, error) { return open(pieces, req.ContentLength, r.Sent) }
		if req.Body, err = req.GetBody(); err != nil {
			return nil, err
		}
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

// piece is a stretch of a body: bytes, or a whole file if path is not empty.
type piece struct {
	bytes []byte
	path  string
}

func (r Request) body() (pieces []piece, contentType string, err error) {
	switch {
	case r.JSON != nil:
		text, err := json.Marshal(r.JSON)
		return []piece{{bytes: text}}, "application/json", err
	case r.Raw != "":
		return []piece{{bytes: []byte(r.Raw)}}, "application/json", nil
	case r.File != "":
		return []piece{{path: r.File}}, "", nil
	case r.Form != nil:
		return encode(r.Form)
	}
	return nil, "", nil
}

// encode returns a form as text with files in between.
func encode(form []Part) (pieces []piece, contentType string, err error) {
	var text bytes.Buffer
	w := multipart.NewWriter(&text)
	for _, p := range form {
		if _, err := w.CreatePart(p.header()); err != nil {
			return nil, "", err
		}
		switch {
		case p.Path != "":
			pieces = append(pieces, piece{bytes: bytes.Clone(text.Bytes())}, piece{path: p.Path})
			text.Reset()
		case p.Bytes != nil:
			text.Write(p.Bytes)
		default:
			text.WriteString(p.Text)
		}
	}
	err = w.Close()
	return append(pieces, piece{bytes: text.Bytes()}), w.FormDataContentType(), err
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

// size returns the length of a body in bytes.
func size(pieces []piece) (total int64, err error) {
	for _, p := range pieces {
		total += int64(len(p.bytes))
		if p.path == "" {
			continue
		}
		info, err := os.Stat(p.path)
		if err != nil {
			return 0, err
		}
		total += info.Size()
	}
	return total, nil
}

// body reads pieces one after another.
type body struct {
	io.Reader
	files []*os.File
}

// open opens a body of total bytes, and reports each part that is read to sent unless it is nil.
func open(pieces []piece, total int64, sent func(float64)) (_ *body, err error) {
	b := &body{}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	var all []io.Reader
	for _, p := range pieces {
		all = append(all, bytes.NewReader(p.bytes))
		if p.path == "" {
			continue
		}
		file, err := os.Open(p.path)
		if err != nil {
			return nil, err
		}
		all, b.files = append(all, file), append(b.files, file)
	}
	b.Reader = io.MultiReader(all...)
	if sent != nil {
		b.Reader = io.TeeReader(b.Reader, &Counter{Total: total, Report: sent})
	}
	return b, nil
}

// Close implements io.Closer.
func (b *body) Close() (err error) {
	for _, file := range b.files {
		err = errors.Join(err, file.Close())
	}
	return err
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
