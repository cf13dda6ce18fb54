package httpapi

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"cutroom/internal/domain/admin"
)

// appPolicy allows only the page's own scripts and styles and calls to its own server: no other origin, no inline code,
// no frame.
const appPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// appTypes are the content types of the files of a built app. The operating system's table differs between machines,
// and browsers must not guess.
var appTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".svg":  "image/svg+xml",
	".png":  "image/png",
	".json": "application/json; charset=utf-8",
	".md":   "text/plain; charset=utf-8",
}

// appFile is a file of the web app, ready to send.
type appFile struct {
	plain, zipped []byte
	contentType   string
	etag          string // without quotes
	cache         string
}

// adminApp mounts the web app under its secret address. The app itself is public code; its reports need an admin's
// token.
func (s *Server) adminApp() {
	root := "/" + s.o.AdminSlug + "/"
	s.handle("GET /"+s.o.AdminSlug, redirectTo(root))
	s.handle("GET "+root+"{path...}", func(w http.ResponseWriter, r *http.Request) error {
		name := cmp.Or(r.PathValue("path"), "index.html")
		if name == "config.json" {
			return ok(w, map[string]string{"clientId": s.o.AdminClientID, "authorizeUrl": s.o.AdminAuthorizeURL})
		}
		f, found := appFiles()[name]
		switch {
		case found:
			f.serve(w, r)
			return nil
		case path.Ext(name) != "":
			return errNoPath
		}
		// The app keeps its own routes after the #, so redirect any other address to its start. Serving the page there
		// would break its relative links.
		return redirectTo(root)(w, r)
	})
}

// redirectTo returns the endpoint of an address that has moved to another one of this server.
func redirectTo(address string) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		http.Redirect(w, r, address, http.StatusFound)
		return nil
	}
}

// protectPage sets the headers of a page that no other page may show in a frame.
func protectPage(w http.ResponseWriter, policy string) {
	w.Header().Set("Content-Security-Policy", policy)
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("X-Frame-Options", "DENY")
}

func (f appFile) serve(w http.ResponseWriter, r *http.Request) {
	protectPage(w, appPolicy)
	h := w.Header()
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("X-Robots-Tag", "noindex, nofollow")
	h.Set("Content-Type", f.contentType)
	h.Set("Cache-Control", f.cache)
	h.Set("Vary", "Accept-Encoding")
	body, etag := f.plain, f.etag
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body, etag = f.zipped, etag+"-gzip"
	}
	h.Set("ETag", `"`+etag+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}

// appFiles returns the embedded files of the app by path. It reads them once.
var appFiles = sync.OnceValue(func() map[string]appFile {
	files := map[string]appFile{}
	app, err := admin.App()
	if err == nil {
		err = fs.WalkDir(app, ".", func(name string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			body, err := fs.ReadFile(app, name)
			files[name] = newAppFile(name, body)
			return err
		})
	}
	if err != nil {
		panic(err) // a bug: the files are part of the program
	}
	return files
})

func newAppFile(name string, body []byte) appFile {
	f := appFile{plain: body, contentType: cmp.Or(appTypes[path.Ext(name)], "application/octet-stream"),
		etag: tagOf(body), cache: "no-store"}
	if strings.HasPrefix(name, "assets/") { // the name holds a hash of the content
		f.cache = "public, max-age=31536000, immutable"
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(body) // a buffer takes everything
	_ = z.Close()
	f.zipped = zipped.Bytes()
	return f
}
