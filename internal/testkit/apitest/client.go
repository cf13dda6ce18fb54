// Requests of a test, and assertions about their responses. Every exchange is checked against openapi.yaml.

package apitest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"cutroom/internal/sandbox/api"
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

// Part is one part of a multipart body.
type Part = api.Part

// Response is a complete response that conforms to openapi.yaml.
type Response struct {
	api.Response
	t    testing.TB
	name string
}

// Do sends a request, checks the exchange against openapi.yaml, and checks the response for leaks. It does not follow
// redirects.
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
	ctx, cancel := context.WithTimeout(t.Context(), requestTimeout)
	if t.Context().Err() != nil { // during cleanup
		ctx, cancel = context.WithTimeout(context.Background(), requestTimeout)
	}
	defer cancel()
	answer, err := s.api().Send(ctx, r.plain())
	if err != nil {
		return nil, err
	}
	res := &Response{answer, t, r.name()}
	x, err := r.exchange(ctx, s.URL, answer)
	if err != nil {
		t.Fatalf("%s: %v", r.name(), err)
	}
	if err := x.check(); err != nil {
		t.Errorf("%s: %d %s\n%v", r.name(), res.Status, res.text(), err)
	}
	if res.Status == http.StatusInternalServerError {
		t.Errorf("%s: answered 500: %s", r.name(), res.text())
	}
	s.checkLeaks(t, r.name(), res)
	return res, nil
}

func (s *Server) api() *api.Client { return &api.Client{Base: s.URL, HTTP: s.client} }

func (r Request) name() string {
	path, _, _ := strings.Cut(r.Path, "?token=")
	return cmp.Or(r.Method, http.MethodGet) + " " + path
}

func (r Request) plain() api.Request {
	return api.Request{Method: r.Method, Path: r.Path, Token: r.Token, Header: r.Header, JSON: r.JSON, Raw: r.Raw, Form: r.Form}
}

// exchange returns what to check against openapi.yaml. In its copy of a multipart form, media is shortened and JSON
// fields have the content type that clients may omit.
func (r Request) exchange(ctx context.Context, base string, answer api.Response) (exchange, error) {
	plain := r.plain()
	plain.Form = slices.Clone(r.Form)
	for i, p := range plain.Form {
		switch {
		case p.Media():
			plain.Form[i] = Part{Name: p.Name, Bytes: []byte("media")}
		case p.Name == "config" || p.Name == "spec":
			plain.Form[i] = Part{Name: p.Name, Text: p.Text, Type: "application/json"}
		default:
			plain.Form[i] = Part{Name: p.Name, Text: p.Text}
		}
	}
	req, err := plain.Build(ctx, base)
	return exchange{req: req, valid: r.Valid, status: answer.Status, header: answer.Header, resBody: answer.Body}, err
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

// Sentence fails the test unless the response has the status and its error is a sentence that contains all the words.
// Case is ignored.
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
func (r *Response) ErrorText() string { return r.problem().Error }

// Detail returns the detail of an error body.
func (r *Response) Detail() string { return r.problem().Detail }

func (r *Response) problem() (body struct{ Error, Detail string }) {
	_ = json.Unmarshal(r.Body, &body) // a body that is not JSON has no error text
	return body
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

// Outside sends a request to another server, such as a presigned upload. It does not check the response.
func (s *Server) Outside(t testing.TB, method, address string, header http.Header, body []byte) *Response {
	t.Helper()
	r := api.Request{Method: method, Path: address, Header: header, Raw: string(body)}
	answer, err := (&api.Client{HTTP: s.client}).Send(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return &Response{answer, t, r.Name()}
}
