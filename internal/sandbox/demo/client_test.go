package demo

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func quiet() *screen { return newScreen(io.Discard) }

// object stands in for the object store and refuses the service's tokens.
func object(t *testing.T) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			http.Error(w, "only one way to authorize", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Disposition", `attachment; filename="rnd-1.mp4"`)
		_, _ = io.WriteString(w, "film")
	}))
	t.Cleanup(s.Close)
	return s
}

func TestDownload(t *testing.T) {
	store := object(t)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /moved", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer T" {
			t.Error("the service did not get the access token")
		}
		http.Redirect(w, r, store.URL+"/film?signature=secret", http.StatusFound)
	})
	mux.HandleFunc("GET /direct.flac", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "stem") })
	mux.HandleFunc("GET /short", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(w, "four")
	})
	service := httptest.NewServer(mux)
	t.Cleanup(service.Close)
	c := newClient(service.URL)
	c.Token = "T"
	dir := t.TempDir()
	for _, tt := range []struct{ address, want, fails string }{
		{"/moved", "out.mp4", ""}, {"/direct.flac", "out.flac", ""}, {"/short", "", "EOF"}, {"/nothing?token=secret", "", "status 404"},
	} {
		path, err := c.fetch(t.Context(), service.URL+tt.address, filepath.Join(dir, "out"), nil)
		if tt.fails != "" {
			if err == nil || !strings.Contains(err.Error(), tt.fails) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: error %v, want %q without the signature", tt.address, err, tt.fails)
			}
			continue
		}
		if err != nil || filepath.Base(path) != tt.want {
			t.Errorf("%s: %s, %v", tt.address, path, err)
		}
	}
	if whole, err := filepath.Glob(filepath.Join(dir, "out.*")); err != nil || len(whole) != 2 {
		t.Errorf("files %v, %v", whole, err)
	}
}

// A file that the object store has is not sent again, and without an object store the demonstration goes on.
// TestWholeDemo uploads.
func TestUploadThatIsNotNeeded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.MP4")
	if err := os.WriteFile(path, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	status, answer := http.StatusOK, `{"assetKey":"assets/k.mp4","alreadyExists":true,"uploadUrl":null}`
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(service.Close)
	c := newClient(service.URL)
	if key, err := c.upload(t.Context(), path, nil); err != nil || key != "assets/k.mp4" {
		t.Errorf("key %q, %v", key, err)
	}
	status, answer = http.StatusServiceUnavailable, `{"error":"r2_disabled"}`
	if _, err := c.upload(t.Context(), path, nil); !errors.Is(err, errNoObjectStore) {
		t.Errorf("error %v", err)
	}
}

func TestWait(t *testing.T) {
	for _, tt := range []struct {
		name    string
		answers []string
		fails   string
	}{
		{"well", []string{`{"status":"QUEUED","queuePosition":2,"estimatedWaitSec":9}`, `{"status":"PROCESSING","progress":40}`, `{"status":"READY","progress":100}`}, ""},
		{"failure", []string{`{"jobId":"sep-1","status":"FAILED","error":"Provider service unavailable"}`}, "sep-1 is FAILED: Provider service unavailable"},
		{"falling progress", []string{`{"status":"PROCESSING","progress":40}`, `{"status":"PROCESSING","progress":39}`}, "progress fell from 40 to 39"},
	} {
		asked := 0
		service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			answer := tt.answers[min(asked, len(tt.answers)-1)]
			asked++
			_, _ = io.WriteString(w, answer)
		}))
		_, err := newClient(service.URL).wait(t.Context(), "/job", "READY", quiet().begin("x"))
		service.Close()
		if tt.fails == "" && err != nil || tt.fails != "" && (err == nil || !strings.Contains(err.Error(), tt.fails)) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.fails)
		}
	}
}
