package httpapi

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"

	"github.com/swaggest/swgui/v5emb"
	"gopkg.in/yaml.v3"

	"cutroom/internal/fault"
)

//go:embed openapi.yaml
var openAPI []byte

// openAPIJSON is the description of the API as JSON.
func openAPIJSON() ([]byte, error) {
	var doc any
	if err := yaml.Unmarshal(openAPI, &doc); err != nil {
		return nil, fmt.Errorf("read openapi.yaml: %w", err)
	}
	b, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("write openapi.json: %w", err)
	}
	return b, nil
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
	guarded := func(h handler) handler {
		return func(w http.ResponseWriter, r *http.Request) error {
			w.Header().Set("Content-Security-Policy", policy)
			w.Header().Set("X-Frame-Options", "DENY")
			w.Header().Set("Referrer-Policy", "no-referrer")
			return h(w, r)
		}
	}
	s.handle("GET /swagger", guarded(func(w http.ResponseWriter, r *http.Request) error {
		http.Redirect(w, r, "/swagger/", http.StatusFound)
		return nil
	}))
	s.handle("GET /swagger/openapi.yaml", guarded(func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Content-Type", "application/yaml; charset=utf-8")
		_, err := w.Write(openAPI)
		return err
	}))
	s.handle("GET /swagger/openapi.json", guarded(func(w http.ResponseWriter, r *http.Request) error {
		b, err := openAPIJSON()
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_, err = w.Write(b)
		return err
	}))
	s.handle("GET /swagger/", guarded(func(w http.ResponseWriter, r *http.Request) error {
		if r.URL.Path == "/swagger/" {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, err := w.Write(page)
			return err
		}
		// The library answers requests for unknown files in plain text.
		if probe(ui, r).status == http.StatusNotFound {
			return fault.New(fault.NotFound, "Not found")
		}
		ui.ServeHTTP(w, r)
		return nil
	}))
}
