package apitest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
)

// requestTimeout bounds one request, including its response.
const requestTimeout = 2 * time.Minute

// Request is one call of the service. At most one of JSON, Raw and Form is set.
type Request struct {
	Method string // default GET
	Path   string // with the query, e.g. /api/v2/credits/cost?durationMs=1
	Token  string // bearer; "" sends no Authorization header
	Header http.Header

	JSON any    // marshalled as application/json
	Raw  string // sent unchanged, as application/json unless Header sets another type
	Form []Part // multipart/form-data

	// Valid marks a request that must conform to openapi.yaml.
	Valid bool
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

// Response is a complete response that conforms to openapi.yaml.
type Response struct {
	Status int
	Header http.Header
	Body   []byte

	t    testing.TB
	name string
}

// Do sends a request, checks the exchange against openapi.yaml, and checks the response for
// leaks. It does not follow redirects.
func (s *Server) Do(t testing.TB, r Request) *Response {
	t.Helper()
	res, err := s.TryDo(t, r)
	if err != nil {
		t.Fatalf("%s: %v", r.name(), err)
	}
	return res
}

// TryDo is Do, but returns an error if the connection fails.
func (s *Server) TryDo(t testing.TB, r Request) (*Response, error) {
	t.Helper()
	req, standin, err := r.build(s.URL)
	if err != nil {
		t.Fatalf("%s: %v", r.name(), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), requestTimeout)
	if t.Context().Err() != nil { // during cleanup
		ctx, cancel = context.WithTimeout(context.Background(), requestTimeout)
	}
	defer cancel()
	answer, err := s.client.Do(req.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	res := &Response{Status: answer.StatusCode, Header: answer.Header, Body: body, t: t, name: r.name()}
	x := exchange{req: req, reqBody: standin, valid: r.Valid, status: res.Status, header: res.Header, resBody: body}
	if err := x.check(); err != nil {
		t.Errorf("%s: %d %s\n%v", r.name(), res.Status, res.text(), err)
	}
	if res.Status == http.StatusInternalServerError {
		t.Errorf("%s: answered 500: %s", r.name(), res.text())
	}
	s.checkLeaks(t, r.name(), res)
	return res, nil
}

func (r Request) name() string {
	path, _, _ := strings.Cut(r.Path, "?token=")
	return r.method() + " " + path
}

func (r Request) method() string {
	if r.Method == "" {
		return http.MethodGet
	}
	return r.Method
}

// build returns the request, and the body to validate against openapi.yaml. In that copy of a
// multipart form, media is shortened and JSON fields have the content type that clients may omit.
func (r Request) build(base string) (*http.Request, []byte, error) {
	var body, standin []byte
	contentType := ""
	var err error
	switch {
	case r.JSON != nil:
		contentType = "application/json"
		if body, err = json.Marshal(r.JSON); err != nil {
			return nil, nil, err
		}
	case r.Form != nil:
		const boundary = "cutroom-apitest-7d1f0c52"
		contentType = "multipart/form-data; boundary=" + boundary
		if body, err = encodeForm(boundary, r.Form); err != nil {
			return nil, nil, err
		}
		if standin, err = encodeForm(boundary, canonical(r.Form)); err != nil {
			return nil, nil, err
		}
	case r.Raw != "":
		contentType, body = "application/json", []byte(r.Raw)
	}
	req, err := http.NewRequest(r.method(), base+r.Path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if r.Token != "" {
		req.Header.Set("Authorization", "Bearer "+r.Token)
	}
	for k, v := range r.Header {
		req.Header[http.CanonicalHeaderKey(k)] = v
	}
	if standin == nil {
		standin = body
	}
	return req, standin, nil
}

func encodeForm(boundary string, parts []Part) ([]byte, error) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	if err := w.SetBoundary(boundary); err != nil {
		return nil, err
	}
	for _, p := range parts {
		content, err := p.content()
		if err != nil {
			return nil, err
		}
		part, err := w.CreatePart(p.header())
		if err != nil {
			return nil, err
		}
		if _, err := part.Write(content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func (p Part) media() bool { return p.Bytes != nil || p.Path != "" }

func (p Part) content() ([]byte, error) {
	if p.Path != "" {
		return os.ReadFile(p.Path)
	}
	if p.Bytes != nil {
		return p.Bytes, nil
	}
	return []byte(p.Text), nil
}

func (p Part) header() textproto.MIMEHeader {
	name, filename, contentType := p.Name, p.Filename, p.Type
	if p.media() {
		if filename == "" {
			filename = p.Name
		}
		if contentType == "" {
			contentType = "application/octet-stream"
		}
	}
	disposition := fmt.Sprintf(`form-data; name=%q`, name)
	if p.Unquoted {
		disposition = "form-data; name=" + name
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

// canonical returns the form as openapi.yaml describes it, with shortened media.
func canonical(parts []Part) []Part {
	out := make([]Part, 0, len(parts))
	for _, p := range parts {
		switch {
		case p.media():
			out = append(out, Part{Name: p.Name, Bytes: []byte("media")})
		case p.Name == "config" || p.Name == "spec":
			out = append(out, Part{Name: p.Name, Text: p.Text, Type: "application/json"})
		default:
			out = append(out, Part{Name: p.Name, Text: p.Text})
		}
	}
	return out
}

// text returns the beginning of the body, for messages.
func (r *Response) text() string {
	if !strings.Contains(r.Header.Get("Content-Type"), "json") && !strings.HasPrefix(r.Header.Get("Content-Type"), "text/") {
		return fmt.Sprintf("(%d bytes of %s)", len(r.Body), r.Header.Get("Content-Type"))
	}
	return string(r.Body[:min(len(r.Body), 600)])
}

// Expect ends the test unless the response has the status.
func (r *Response) Expect(status int) *Response {
	r.t.Helper()
	if r.Status != status {
		r.t.Fatalf("%s: status %d, want %d: %s", r.name, r.Status, status, r.text())
	}
	return r
}

// Error fails the test unless the response has the status and the error code.
func (r *Response) Error(status int, code string) *Response {
	r.t.Helper()
	if r.Status != status || r.ErrorText() != code {
		r.t.Errorf("%s: %d %s, want %d %s", r.name, r.Status, r.text(), status, code)
	}
	return r
}

// Sentence fails the test unless the response has the status and its error is a sentence that
// contains all the words. Case is ignored.
func (r *Response) Sentence(status int, words ...string) *Response {
	r.t.Helper()
	text := r.ErrorText()
	if r.Status != status || !strings.Contains(text, " ") {
		r.t.Errorf("%s: %d %s, want %d and a sentence", r.name, r.Status, r.text(), status)
		return r
	}
	for _, w := range words {
		if !strings.Contains(strings.ToLower(text), strings.ToLower(w)) {
			r.t.Errorf("%s: error %q does not mention %q", r.name, text, w)
		}
	}
	return r
}

// ErrorText returns the error in the body, or "".
func (r *Response) ErrorText() string {
	var body struct{ Error string }
	_ = json.Unmarshal(r.Body, &body) // a body that is not JSON has no error text
	return body.Error
}

// Detail returns the detail of an error body.
func (r *Response) Detail() string {
	var body struct{ Detail string }
	_ = json.Unmarshal(r.Body, &body)
	return body.Detail
}

// Job returns the job id in the response, and ends the test unless the response has the status.
func (r *Response) Job(status int) string {
	r.t.Helper()
	var body struct{ JobID string }
	r.Expect(status).JSON(&body)
	return body.JobID
}

// JSON decodes the body into v, and ends the test if it cannot.
func (r *Response) JSON(v any) *Response {
	r.t.Helper()
	if err := json.Unmarshal(r.Body, v); err != nil {
		r.t.Fatalf("%s: %v: %s", r.name, err, r.text())
	}
	return r
}

// pathOf returns the path and query of a URL that the service issued.
func (s *Server) pathOf(t testing.TB, absolute string) string {
	t.Helper()
	u, err := url.Parse(absolute)
	if err != nil || "http://"+u.Host != s.URL {
		t.Fatalf("%s is not an address of %s", absolute, s.URL)
	}
	return u.RequestURI()
}

// Outside sends a request to another server, such as a presigned upload. It does not check the
// response.
func (s *Server) Outside(t testing.TB, method, address string, header http.Header, body []byte) *Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		req.Header[http.CanonicalHeaderKey(k)] = v
	}
	name := method + " " + req.URL.Host
	answer, err := s.client.Do(req)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatalf("%s: read the answer: %v", name, err)
	}
	return &Response{Status: answer.StatusCode, Header: answer.Header, Body: content, t: t, name: name}
}
