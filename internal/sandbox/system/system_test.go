// Starts the whole sandbox with the test program in the place of cutroom, signs in, and stops it.

package system_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"cutroom/internal/sandbox"
	"cutroom/internal/sandbox/system"
)

// TestMain also acts as cutroom: the system under test runs this test binary as the service, with the command line and
// interface that cutroom documents.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 || strings.HasPrefix(os.Args[1], "-test.") {
		os.Exit(m.Run())
	}
	admins := filepath.Join(filepath.Dir(os.Getenv("STORAGE_PATH")), "admins")
	switch strings.Join(os.Args[1:], " ") {
	case "serve":
		os.Exit(serve(admins))
	case "admin grant admin@sandbox.example":
		if err := os.WriteFile(admins, []byte("admin@sandbox.example"), 0o600); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	fmt.Println("unknown command", os.Args[1:])
	os.Exit(2)
}

func serve(admins string) int {
	if os.Getenv("DB_MAX_POOL") == "13" {
		fmt.Println("DATABASE_URL is wrong")
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /api/v2/auth/provider_a", func(w http.ResponseWriter, r *http.Request) {
		var in struct{ IDToken string }
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			w.WriteHeader(400)
			return
		}
		res, err := http.Get(os.Getenv("AUTH_PROVIDER_A_TOKENINFO_URL") + "?id_token=" + url.QueryEscape(in.IDToken))
		if err != nil || res.StatusCode != 200 {
			w.WriteHeader(401)
			return
		}
		var claims struct{ Email string }
		_ = json.NewDecoder(res.Body).Decode(&claims)
		role := "user"
		if list, err := os.ReadFile(admins); err == nil && string(list) == claims.Email {
			role = "admin"
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"accessToken": "token-of-" + claims.Email, "expiresAt": 1,
			"user": map[string]string{"sub": "id-" + claims.Email, "email": claims.Email, "role": role}})
	})
	mux.HandleFunc("GET /env/{key}", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, os.Getenv(r.PathValue("key"))) })
	server := &http.Server{Addr: "127.0.0.1:" + os.Getenv("PORT"), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.RequestURI, "/echo") {
			_, _ = io.WriteString(w, r.RequestURI)
			return
		}
		mux.ServeHTTP(w, r)
	})}
	go func() { _ = server.ListenAndServe() }()
	fmt.Println("serving")
	<-ctx.Done()
	_ = server.Close()
	return 0
}

func send(t *testing.T, method, address, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return read(t, req)
}

func read(t *testing.T, req *http.Request) string {
	t.Helper()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestStartSignsInAndStops(t *testing.T) {
	t.Setenv("DATABASE_URL", "postgres://production/")
	t.Setenv("OBJECT_STORE_BUCKET", "production")
	t.Setenv("MEDIA_MAX_MEMORY_MB", "777")
	const collector = "http://127.0.0.1:4318"
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var log bytes.Buffer
	s, err := system.Start(t.Context(), system.Options{World: sandbox.Options{DataDir: dir, Fast: true}, Cutroom: self, Log: &log,
		Settable: []string{"DB_MAX_POOL", "MEDIA_MAX_MEMORY_MB"}})
	if err != nil {
		t.Fatal(err)
	}
	if s.User.Role != "user" || s.User.AccessToken != "token-of-user@sandbox.example" || s.Admin.Role != "admin" {
		t.Errorf("sessions %+v, %+v", s.User, s.Admin)
	}
	for key, want := range map[string]string{"DATABASE_URL": "sqlite://" + dir + "/cutroom.db", "OBJECT_STORE_BUCKET": "",
		"MEDIA_MAX_MEMORY_MB": "777", "OTEL_EXPORTER_OTLP_ENDPOINT": collector} {
		if got := send(t, "GET", s.BaseURL+"/env/"+key, ""); got != want {
			t.Errorf("the service sees %s=%q, want %q", key, got, want)
		}
	}
	for _, tt := range []struct{ change, want string }{
		{`{"settings":{"MEDIA_MAX_MEMORY_MB":"778"}}`, `"MEDIA_MAX_MEMORY_MB":"778"`},
		{`{"settings":{"DB_MAX_POOL":13}}`, "it runs again as it was"},
		{`{"settings":{"STORAGE_PATH":"/bin/true"}}`, "must be a whole number"},
		{`{"settings":{"PORT":"1"}}`, "PORT cannot be set here"},
		{`{"settings":{"SEPARATION_URL_TLT_SEC":"60"}}`, "SEPARATION_URL_TLT_SEC cannot be set here"},
		{`{"aheed":"1h"}`, `unknown field \"aheed\"`},
		{`{"ahead":1}`, "ahead must be a JSON string, not a number"},
		{`{"ahead":"1h"}`, "cannot be moved"},
		{`{"ahead":"-1h"}`, "goes forward only"},
	} {
		if got := send(t, "PUT", s.BaseURL+"/__control/service", tt.change); !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s", tt.change, got)
		}
		if got := send(t, "GET", s.BaseURL+"/env/MEDIA_MAX_MEMORY_MB", ""); got != "778" {
			t.Errorf("after %s the service sees %s", tt.change, got)
		}
	}
	for _, target := range []string{"/echo?a;b", "/echo?a=%zz&b=1", "/echo/%2e%2e/b?c", "/echo/../b", "/echo//b", "/echo/%2F"} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.BaseURL, nil)
		req.URL.Opaque = strings.TrimPrefix(s.BaseURL, "http:") + target
		if got := read(t, req); got != target {
			t.Errorf("the service gets %s, want %s", got, target)
		}
	}
	select {
	case <-s.Ended():
		t.Error("a service that was started anew counts as ended")
	default:
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("second stop: %v", err)
	}
	if got := strings.Replace(log.String(), "DATABASE_URL is wrong\n", "", 1); got != strings.Repeat("serving\n", 3) {
		t.Errorf("log %q", log.String())
	}
	if _, err := http.Get(s.BaseURL + "/healthz"); err == nil {
		t.Error("the service still runs")
	}
}
