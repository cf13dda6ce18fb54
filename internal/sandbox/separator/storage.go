package separator

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
)

// serveResult sends the bytes behind a link, with Range as object storage does.
func (p *Provider) serveResult(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	pr := p.find(r)
	name := ""
	if pr != nil && pr.done {
		name = p.resultOf(pr, r)
	}
	if name == "" || p.isStale(pr, name, r.URL.RequestURI()) {
		p.mu.Unlock()
		w.Header().Set("X-Cache", "Error from cache")
		http.Error(w, "<Error><Code>NoSuchKey</Code></Error>", http.StatusNotFound)
		return
	}
	custom, at := p.behaviour.Bytes[name], pr.completedAt
	path := filepath.Join(pr.dir, filepath.Base(r.PathValue("file")))
	p.mu.Unlock()

	if custom != nil {
		w.Header().Set("Content-Type", "application/octet-stream")
		http.ServeContent(w, r, "", at, bytes.NewReader(custom))
		return
	}
	file, err := os.Open(path)
	if err != nil {
		http.Error(w, "<Error><Code>NoSuchKey</Code></Error>", http.StatusNotFound)
		return
	}
	defer func() { _ = file.Close() }()
	switch filepath.Ext(path) {
	case ".wav":
		w.Header().Set("Content-Type", "audio/wav")
	case ".tar":
		w.Header().Set("Content-Type", "application/x-tar")
	}
	http.ServeContent(w, r, "", at, file)
}

// resultOf returns the result that a link names, or "". The caller holds the lock.
func (p *Provider) resultOf(pr *project, r *http.Request) string {
	file := r.PathValue("file")
	if r.URL.Query().Get("sub") != "" {
		if file == pr.files[ResultSubBackground] || file == ResultSubBackground+".bin" {
			return ResultSubBackground
		}
		return ""
	}
	for _, name := range []string{ResultVoice, ResultBackground, ResultSpeakers} {
		if file == pr.files[name] || file == name+".bin" {
			return name
		}
	}
	return ""
}

// isStale acts like a CDN that cached a miss: the first links of a result that are
// fetched return 404 from then on. The caller holds the lock.
func (p *Provider) isStale(pr *project, name, link string) bool {
	seen := pr.stale[name]
	if seen[link] {
		return true
	}
	if len(seen) >= p.behaviour.StaleLinks {
		return false
	}
	if seen == nil {
		seen = map[string]bool{}
		pr.stale[name] = seen
	}
	seen[link] = true
	return true
}
