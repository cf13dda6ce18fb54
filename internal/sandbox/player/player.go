// Package player serves the studio, a page for making a film with the sandbox. It uses only the public API, and the
// control calls that mint an identity or register a purchase.
package player

import (
	"context"
	"embed"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"cutroom/internal/sandbox/api"
	"cutroom/internal/sandbox/demo"
	"cutroom/internal/sandbox/fake"
	"cutroom/internal/sandbox/notify"
)

// Prefix is the prefix of all paths of the page. The API must be on the same host.
const Prefix = "/player/"

// The page as it was built from web/player. It is kept beside the source so that building the sandbox needs no Node.
//
//go:embed all:dist
var dist embed.FS

// steering lists the control calls that the page may make.
var steering = []string{"provider_a/mint", "provider_b/mint", "platform_a/purchases"}

// Page serves the studio and its sample material.
type Page struct {
	mux     *http.ServeMux
	making  sync.Mutex
	samples string // folder, made by Prepare
}

// ServeHTTP serves everything under Prefix.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.mux.ServeHTTP(w, r) }

// Prepare makes the sample material unless it exists. A request for a sample does so as well, but then a person waits.
func (p *Page) Prepare(ctx context.Context) error {
	p.making.Lock()
	defer p.making.Unlock()
	if _, err := os.Stat(p.samples); err == nil {
		return nil
	}
	return demo.Samples(ctx, p.samples)
}

// New serves the page under Prefix. servers returns the addresses of the stand-ins by name. samples is a folder for the
// material that the page offers.
func New(servers func() map[string]string, samples string) *Page {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // the embedded files always exist
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+Prefix, page(http.StripPrefix(Prefix, http.FileServerFS(files)), servers))
	for _, call := range steering {
		server, path, _ := strings.Cut(call, "/")
		mux.HandleFunc("POST "+Prefix+"sandbox/"+call, func(w http.ResponseWriter, r *http.Request) {
			steer(w, r, servers()[server], path)
		})
	}
	mux.HandleFunc("GET "+Prefix+"sandbox/pushes/{token}", func(w http.ResponseWriter, r *http.Request) {
		pushes(w, r, servers()["push_b"])
	})
	p := &Page{mux: mux, samples: samples}
	mux.HandleFunc("GET "+Prefix+"samples/{name}", func(w http.ResponseWriter, r *http.Request) {
		// If this client disconnects, the next one finds the file.
		if err := p.Prepare(context.WithoutCancel(r.Context())); err != nil {
			http.Error(w, "the samples cannot be made", http.StatusInternalServerError)
			return
		}
		http.ServeFileFS(w, r, os.DirFS(samples), filepath.Base(r.PathValue("name")))
	})
	return p
}

// page serves a file with a policy that allows its own scripts and styles, and requests to its own server and to the
// object store, for uploads and downloads.
func page(next http.Handler, servers func() map[string]string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		store := servers()["object_store"]
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "+
			"media-src 'self' blob: "+store+"; connect-src 'self' blob: "+store+"; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-cache")
		next.ServeHTTP(w, r)
	})
}

// steer forwards a call to a stand-in.
func steer(w http.ResponseWriter, r *http.Request, server, path string) {
	var body, answer map[string]any
	err := fake.ReadJSON(r, &body)
	if err == nil {
		err = api.New(server).Post(r.Context(), fake.ControlPrefix+path, body, &answer)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	fake.WriteJSON(w, http.StatusOK, answer)
}

// pushes lists the messages that a push stand-in accepted for one device.
func pushes(w http.ResponseWriter, r *http.Request, server string) {
	var all []notify.Message
	if err := api.New(server).Get(r.Context(), fake.ControlPrefix+"messages", &all); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	all = slices.DeleteFunc(all, func(m notify.Message) bool { return m.Token != r.PathValue("token") })
	fake.WriteJSON(w, http.StatusOK, append([]notify.Message{}, all...)) // [] instead of null
}
