package httpapi

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"net/http"
	"net/url"
	"regexp"

	"github.com/swaggest/swgui/v5emb"
	"go.yaml.in/yaml/v3"
)

//go:embed openapi.yaml
var openAPI []byte

// openAPIJSON returns the description of the API as JSON.
func openAPIJSON() []byte {
	var doc any
	if err := yaml.Unmarshal(openAPI, &doc); err != nil {
		panic(err) // a bug: the file is part of the program
	}
	return encode(doc)
}

// docsPage returns the page of the interactive API description and its policy. The page may run only its own
// scripts and call only its own server, because it shares its origin with the admin app. The policy lists the
// hashes of its inline scripts; the library sets styles inline.
func docsPage(ui http.Handler) (page []byte, policy string) {
	page = probe(ui, &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/swagger/"}}).body
	policy = "default-src 'none'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; script-src 'self'"
	for _, script := range inlineScript.FindAllSubmatch(page, -1) {
		sum := sha256.Sum256(script[1])
		policy += " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return page, policy
}

var inlineScript = regexp.MustCompile(`(?s)<script>(.*?)</script>`)

// docsRoutes mounts the interactive description of the API. Page and scripts come from the binary.
func (s *Server) docsRoutes() {
	ui := v5emb.New("cutroom", "/swagger/openapi.yaml", "/swagger/")
	page, policy := docsPage(ui)
	document := func(contentType string, body []byte) handler {
		return func(w http.ResponseWriter, r *http.Request) error {
			protectPage(w, policy)
			w.Header().Set("Content-Type", contentType)
			_, err := w.Write(body)
			return err
		}
	}
	s.handle("GET /swagger", redirectTo("/swagger/"))
	s.handle("GET /swagger/{$}", document("text/html; charset=utf-8", page))
	s.handle("GET /swagger/openapi.yaml", document("application/yaml; charset=utf-8", openAPI))
	s.handle("GET /swagger/openapi.json", document("application/json; charset=utf-8", openAPIJSON()))
	s.handle("GET /swagger/", func(w http.ResponseWriter, r *http.Request) error {
		// The library answers requests for unknown files in plain text.
		if probe(ui, r).status == http.StatusNotFound {
			return errNoPath
		}
		protectPage(w, policy)
		ui.ServeHTTP(w, r)
		return nil
	})
}

// probed is a handler's answer in memory.
type probed struct {
	header http.Header
	status int
	body   []byte
}

// probe returns what a handler would answer.
func probe(h http.Handler, r *http.Request) *probed {
	p := &probed{header: http.Header{}}
	h.ServeHTTP(p, r)
	return p
}

func (p *probed) Header() http.Header         { return p.header }
func (p *probed) Write(b []byte) (int, error) { p.body = append(p.body, b...); return len(b), nil }
func (p *probed) WriteHeader(status int)      { p.status = status }
