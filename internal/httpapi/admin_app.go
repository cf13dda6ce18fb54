package httpapi

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"cutroom/internal/admin"
	"cutroom/internal/fault"
)

// appPolicy allows only the page's own scripts and styles and calls to its own server: no other origin, no
// inline code, no frame.
const appPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// appTypes are the content types of the files of a built app. The operating system's table would differ between
// machines, and browsers must not guess.
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

// adminApp mounts the web app under its secret address. The app itself is public code; its reports need an
// admin's token.
func (s *Server) adminApp() {
	root := "/" + s.o.AdminSlug + "/"
	s.handle("GET /"+s.o.AdminSlug, func(w http.ResponseWriter, r *http.Request) error {
		http.Redirect(w, r, root, http.StatusFound)
		return nil
	})
	s.handle("GET "+root+"{path...}", func(w http.ResponseWriter, r *http.Request) error {
		files, err := appFiles()
		if err != nil {
			return err
		}
		name := r.PathValue("path")
		if name == "" {
			name = "index.html"
		}
		if name == "config.json" {
			return ok(w, map[string]string{"clientId": s.o.AdminClientID, "authorizeUrl": s.o.AdminAuthorizeURL})
		}
		f, found := files[name]
		switch {
		case found:
			f.serve(w, r)
		case path.Ext(name) != "":
			return fault.Sentencef(fault.NotFound, "Not found")
		default:
			// The app keeps its own routes after the #, so redirect any other address to its start. Serving the
			// page there would break its relative links.
			http.Redirect(w, r, root, http.StatusFound)
		}
		return nil
	})
}

func (f *appFile) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", appPolicy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("X-Robots-Tag", "noindex, nofollow")
	h.Set("Content-Type", f.contentType)
	h.Set("Cache-Control", f.cache)
	h.Set("Vary", "Accept-Encoding")
	body, etag := f.plain, f.etag
	if f.zipped != nil && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body, etag = f.zipped, etag+"-gzip"
	}
	h.Set("ETag", `"`+etag+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}

// appFiles returns the embedded files of the app by path. It reads them once.
var appFiles = sync.OnceValues(func() (map[string]*appFile, error) {
	app, err := admin.App()
	if err != nil {
		return nil, fmt.Errorf("open the admin app: %w", err)
	}
	files := map[string]*appFile{}
	err = fs.WalkDir(app, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		body, err := fs.ReadFile(app, name)
		if err != nil {
			return err
		}
		files[name], err = newAppFile(name, body)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the admin app: %w", err)
	}
	return files, nil
})

func newAppFile(name string, body []byte) (*appFile, error) {
	sum := sha256.Sum256(body)
	f := &appFile{plain: body, contentType: appTypes[path.Ext(name)], etag: base64.RawURLEncoding.EncodeToString(sum[:12]),
		cache: "no-store"}
	if f.contentType == "" {
		f.contentType = "application/octet-stream"
	}
	if strings.HasPrefix(name, "assets/") { // the name holds a hash of the content
		f.cache = "public, max-age=31536000, immutable"
	}
	var zipped bytes.Buffer
	z, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(body); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	if zipped.Len() < len(body) {
		f.zipped = zipped.Bytes()
	}
	return f, nil
}
