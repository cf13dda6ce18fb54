package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
)

func TestPathsAreExactAndQueriesReadable(t *testing.T) {
	r := newHarness(t, harnessOptions{env: map[string]string{"ADMIN_SLUG": "back-office", "ENABLE_API_DOCS": "true"}})
	for target, want := range map[string]int{
		"/healthz": 200, "/healthz?x=1": 200, "/swagger/": 200, "/back-office/": 200,
		"//healthz": 404, "/x/../healthz": 404, "/./healthz": 404, "/healthz/": 404, "//back-office/": 404, "/back-office//": 404,
		"/back-office/../healthz": 404, "/swagger//": 404, "/api/v2//credits": 404, "/api/v2/credits/": 404, "/": 404,
		"/healthz?a;b": 400, "/healthz?x=%zz": 400, "/api/v2/credits/cost?durationMs=1;x=2": 400, "/nowhere?x=%zz": 404,
	} {
		w := r.do(request{method: "GET", target: target})
		if w.Code != want || want >= 400 && !strings.HasPrefix(w.Body.String(), `{"error":"`) || w.Header().Get("Location") != "" {
			t.Errorf("%s: %d %.80s, Location %q, want %d", target, w.Code, w.Body, w.Header().Get("Location"), want)
		}
	}
	if w := r.do(request{method: "PUT", target: "/back-office/"}); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" || !strings.HasPrefix(w.Body.String(), `{"error":"`) {
		t.Errorf("another method below the admin app: %d %v %s", w.Code, w.Header(), w.Body)
	}
}
