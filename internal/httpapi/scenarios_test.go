package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestCORS(t *testing.T) {
	preflight := map[string]string{"Origin": "https://app.example", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,idempotency-key"}
	for _, tt := range []struct{ allowed, want string }{{"", "*"}, {"https://b.example, https://app.example", "https://app.example"},
		{"https://b.example, http://app.example, https://app.example.evil, https://app", ""}} {
		r := newHarness(t, harnessOptions{env: map[string]string{"CORS_ALLOWED_ORIGINS": tt.allowed}})
		w := r.do(request{method: "OPTIONS", target: "/api/v2/render", header: preflight})
		if w.Code != http.StatusNoContent || w.Header().Get("Access-Control-Allow-Origin") != tt.want {
			t.Errorf("preflight with %q: %d %v", tt.allowed, w.Code, w.Header())
		}
		if tt.want != "" && !strings.Contains(w.Header().Get("Access-Control-Allow-Headers"), "idempotency-key") {
			t.Errorf("headers %q", w.Header().Get("Access-Control-Allow-Headers"))
		}
		for _, user := range []string{"", r.ghost()} { // browsers must be able to read errors, too
			w = r.do(request{method: "GET", target: "/api/v2/credits", user: user, header: map[string]string{"Origin": "https://app.example"}})
			if w.Header().Get("Access-Control-Allow-Origin") != tt.want || w.Header().Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("answer with %q: %d %v", tt.allowed, w.Code, w.Header())
			}
		}
	}
}

// rawConn opens a connection to the API over a real listener.
func rawConn(t *testing.T, r *harness) net.Conn {
	t.Helper()
	s := httptest.NewServer(r.handler)
	t.Cleanup(s.Close)
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestExpectIsNotAnsweredWithLeaveBeforeTheToken(t *testing.T) {
	c := rawConn(t, onSQLite(t))
	// A client that sends Expect: 100-continue for a body that would be refused gets no
	// 100.
	if _, err := fmt.Fprint(c, "POST /api/v2/render HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\nExpect: 100-continue\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("status %d before the body, want 401", answer.StatusCode)
	}
}

func TestHEADIsGETWithoutABody(t *testing.T) {
	r := onSQLite(t)
	s := httptest.NewServer(r.handler)
	defer s.Close()
	user := r.signIn().token
	for _, path := range []string{"/healthz", "/api/v2/credits", "/api/v2/credits/cost?durationMs=1", "/api/v2/render/x/status", "/api/v2/separate/x", "/nope"} {
		var answers [2]*http.Response
		for i, method := range []string{http.MethodGet, http.MethodHead} {
			q, err := http.NewRequestWithContext(context.Background(), method, s.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			q.Header.Set("Authorization", "Bearer "+user)
			if answers[i], err = http.DefaultClient.Do(q); err != nil {
				t.Fatal(err)
			}
			answers[i].Body.Close()
		}
		get, head := answers[0], answers[1]
		if get.StatusCode != head.StatusCode || get.ContentLength != head.ContentLength || get.Header.Get("Content-Type") != head.Header.Get("Content-Type") {
			t.Errorf("%s: GET %d with %d bytes, HEAD %d with %d", path, get.StatusCode, get.ContentLength, head.StatusCode, head.ContentLength)
		}
	}
}
