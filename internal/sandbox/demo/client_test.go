package demo

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cutroom/internal/sandbox/api"
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
	if whole, err := filepath.Glob(filepath.Join(dir, "out.*")); err != nil || len(whole) != 3 { // two, and out.part
		t.Errorf("files %v, %v", whole, err)
	}
}

func TestRefusalsAreReadable(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/html" {
			http.Error(w, "<h1>gateway</h1>", http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusPaymentRequired)
		_, _ = io.WriteString(w, `{"error":"insufficient_credits","detail":"required=2 balance=1"}`)
	}))
	t.Cleanup(service.Close)
	c := newClient(service.URL)
	err := c.Post(t.Context(), "/api/v2/separate?x=1", map[string]int{}, nil)
	var refusal *api.Error
	if !errors.As(err, &refusal) || refusal.Status != 402 || refusal.Code != "insufficient_credits" {
		t.Fatalf("error %v", err)
	}
	if want := "POST /api/v2/separate: the service answered 402 insufficient_credits (required=2 balance=1)"; err.Error() != want {
		t.Errorf("says %q, want %q", err, want)
	}
	if err = c.Get(t.Context(), "/html", nil); err == nil || !strings.Contains(err.Error(), "502 <h1>gateway</h1>") {
		t.Errorf("error %v", err)
	}
}

// A submission looks like the mobile app's: media parts first, the music called
// bgm_0.audio with the type audio/*.
func TestSubmissionLooksLikeTheApps(t *testing.T) {
	dir := t.TempDir()
	film, song := filepath.Join(dir, "a.mp4"), filepath.Join(dir, "song.m4a")
	for path, text := range map[string]string{film: "FILM", song: "SONG"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parts, err := r.MultipartReader()
		if err != nil {
			t.Error(err)
			return
		}
		for {
			p, err := parts.NextPart()
			if err != nil {
				break
			}
			body, _ := io.ReadAll(p)
			got = append(got, p.FormName()+"|"+p.FileName()+"|"+p.Header.Get("Content-Type")+"|"+string(body))
		}
		_, _ = io.WriteString(w, `{"jobId":"rnd-7"}`)
	}))
	t.Cleanup(service.Close)
	names := sources{clips: []string{"video_0"}, music: "bgm_0"}
	id, err := newClient(service.URL).render(t.Context(), map[string]any{"quality": "low"}, names, []clip{{path: film}}, song, quiet().begin("x"))
	if err != nil || id != "rnd-7" {
		t.Fatalf("%q, %v", id, err)
	}
	want := []string{"video_0|video_0.mp4|video/mp4|FILM", "bgm_0|bgm_0.audio|audio/*|SONG", `config|||{"quality":"low"}`}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("parts\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestUploadSignsWhatItSends(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.MP4")
	if err := os.WriteFile(path, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	puts := 0
	mux := http.NewServeMux()
	var base string
	exists, disabled := false, false
	mux.HandleFunc("POST /api/v2/assets/upload-url", func(w http.ResponseWriter, r *http.Request) {
		var in map[string]any
		_ = json.NewDecoder(r.Body).Decode(&in)
		if in["sha256Hex"] != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" || in["sizeBytes"] != 3.0 || in["ext"] != "mp4" || in["contentType"] != "video/mp4" {
			t.Errorf("asked for %v", in)
		}
		switch {
		case disabled:
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"error":"r2_disabled"}`)
		case exists:
			_, _ = io.WriteString(w, `{"assetKey":"assets/k.mp4","alreadyExists":true,"uploadUrl":null}`)
		default:
			_, _ = io.WriteString(w, `{"assetKey":"assets/k.mp4","alreadyExists":false,"uploadUrl":"`+base+`/put"}`)
		}
	})
	mux.HandleFunc("PUT /put", func(_ http.ResponseWriter, r *http.Request) {
		puts++
		body, _ := io.ReadAll(r.Body)
		if r.ContentLength != 3 || r.Header.Get("Content-Type") != "video/mp4" || r.Header.Get("Authorization") != "" || !bytes.Equal(body, []byte("abc")) {
			t.Errorf("put %d bytes %v", r.ContentLength, r.Header)
		}
	})
	service := httptest.NewServer(mux)
	t.Cleanup(service.Close)
	base = service.URL
	c := newClient(base)
	c.Token = "T"
	for range 2 {
		if key, err := c.upload(t.Context(), path, nil); err != nil || key != "assets/k.mp4" {
			t.Errorf("key %q, %v", key, err)
		}
		exists = true
	}
	if puts != 1 {
		t.Errorf("%d uploads, want 1: the second time the file was there", puts)
	}
	disabled = true
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
		{"well", []string{`{"status":"QUEUED","queuePosition":2,"estimatedWaitSec":9}`, "", `{"status":"PROCESSING","progress":40}`, `{"status":"READY","progress":100}`}, ""},
		{"failure", []string{`{"jobId":"sep-1","status":"FAILED","error":"Provider service unavailable"}`}, "sep-1 is FAILED: Provider service unavailable"},
		{"falling progress", []string{`{"status":"PROCESSING","progress":40}`, `{"status":"PROCESSING","progress":39}`}, "progress fell from 40 to 39"},
	} {
		asked := 0
		service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer := tt.answers[min(asked, len(tt.answers)-1)]
			if r.Header.Get("Prefer") == "" != (asked == 0) || r.Header.Get("If-None-Match") == "" != (asked == 0) {
				t.Errorf("question %d: %v", asked, r.Header)
			}
			asked++
			w.Header().Set("ETag", `"1"`)
			w.Header().Set("Preference-Applied", "wait=30")
			if answer == "" {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			_, _ = io.WriteString(w, answer)
		}))
		_, err := newClient(service.URL).wait(t.Context(), "/job", "READY", quiet().begin("x"))
		service.Close()
		if tt.fails == "" && err != nil || tt.fails != "" && (err == nil || !strings.Contains(err.Error(), tt.fails)) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.fails)
		}
	}
}
