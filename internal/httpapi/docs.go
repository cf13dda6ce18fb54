package httpapi

import (
	_ "embed"
	"net/http"

	"github.com/swaggest/swgui/v5emb"
)

//go:embed openapi.yaml
var openAPI []byte

// docsRoutes mounts the interactive description of the API. Its page and
// scripts come from the binary; nothing is loaded from elsewhere.
func (s *Server) docsRoutes() {
	ui := v5emb.New("cutroom", "/swagger/openapi.yaml", "/swagger/")
	s.mux.HandleFunc("GET /swagger", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/swagger/", http.StatusFound)
	})
	s.mux.HandleFunc("GET /swagger/openapi.yaml", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/yaml; charset=utf-8")
		w.Write(openAPI)
	})
	s.mux.Handle("GET /swagger/", ui)
}
