package httpapi_test

import (
	"net/http"
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
