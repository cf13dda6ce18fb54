package httpapi_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"cutroom/internal/testkit/dbtest"
)

// The whole path from a failed request to the monitoring service: configuration, log, report, HTTP.
func TestAFailureOfOursReachesTheMonitoring(t *testing.T) {
	envelopes := make(chan string, 16)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		envelopes <- string(text)
		_, _ = io.WriteString(w, "{}")
	}))
	defer collector.Close()
	r := newHarness(t, harnessOptions{log: slog.DiscardHandler, env: map[string]string{
		"MONITORING_DSN": strings.Replace(collector.URL, "://", "://key@", 1) + "/7", "MONITORING_ENV": "staging", "MONITORING_RELEASE": "9.8.7"}})
	user := r.signIn()
	r.do(request{method: "GET", target: "/api/v2/separate/sep-x", user: user.token}) // a client's mistake is no failure
	dbtest.Exec(t, r.db, `DROP TABLE credit_balances`)
	w := r.do(request{method: "GET", target: "/api/v2/credits?q=hunter2", user: user.token})
	if w.Code != http.StatusInternalServerError || strings.TrimSpace(w.Body.String()) != `{"error":"Internal server error"}` {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	var event string // the first one
	for deadline := time.After(time.Minute); !strings.Contains(event, `"type":"event"`); {
		select {
		case event = <-envelopes:
		case <-deadline:
			t.Fatal("no event arrived")
		}
	}
	for _, want := range []string{"9.8.7", "staging", w.Header().Get("X-Request-Id"), "GET /api/v2/credits", "read balance"} {
		if !strings.Contains(event, want) {
			t.Errorf("the report lacks %q:\n%.2000s", want, event)
		}
	}
	for _, secret := range []string{user.id, user.token, "hunter2", "example.test", "sep-x", "2001:db8"} {
		if strings.Contains(event, secret) {
			t.Errorf("%q leaves the house", secret)
		}
	}
}
