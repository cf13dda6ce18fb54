package httpapi

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"

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

// docsRoutes mounts the interactive description of the API. Its page and
// scripts come from the binary; nothing is loaded from elsewhere.
func (s *Server) docsRoutes() {
	ui := v5emb.New("cutroom", "/swagger/openapi.yaml", "/swagger/")
	s.handle("GET /swagger", func(w http.ResponseWriter, r *http.Request) error {
		http.Redirect(w, r, "/swagger/", http.StatusFound)
		return nil
	})
	s.handle("GET /swagger/openapi.yaml", func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Content-Type", "application/yaml; charset=utf-8")
		_, err := w.Write(openAPI)
		return err
	})
	s.handle("GET /swagger/openapi.json", func(w http.ResponseWriter, r *http.Request) error {
		b, err := openAPIJSON()
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_, err = w.Write(b)
		return err
	})
	s.handle("GET /swagger/", func(w http.ResponseWriter, r *http.Request) error {
		// The page says in words of its own what it has not.
		probe := &headerProbe{header: http.Header{}}
		if ui.ServeHTTP(probe, r); probe.status == http.StatusNotFound {
			return fault.Sentencef(fault.NotFound, "Not found")
		}
		ui.ServeHTTP(w, r)
		return nil
	})
}
