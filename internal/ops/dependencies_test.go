package ops

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"cutroom/internal/db"
	"cutroom/internal/dbtest"
)

// What gives no answer or refuses the service is counted; a request that was
// called off, a 404, and what was only asked for, are not.
func TestFailuresOfDependenciesAreCounted(t *testing.T) {
	d := dbtest.SQLite(t)
	r := startReplica(t, d)
	dependencies := NewDependencies(d)
	r.metrics.Register(dependencies)
	status := http.StatusOK
	vendor := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer vendor.Close()
	client := dependencies.Client("provider_a", vendor.Client())
	ask := func(ctx context.Context) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, vendor.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := client.Do(req); err == nil {
			_ = resp.Body.Close() // nothing was written
		}
	}
	wantLine := func(line string) {
		t.Helper()
		if _, body := get(t, r.URL+"/metrics"); !strings.Contains(body, "\n"+line+"\n") {
			t.Errorf("no line %q in\n%s", line, body)
		}
	}
	wantLine(`cutroom_dependency_errors_total{of="provider_a"} 0`)
	wantLine(`cutroom_dependency_errors_total{of="database"} 0`)
	for _, status = range []int{200, 404, 400} {
		ask(t.Context())
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	ask(gone)
	wantLine(`cutroom_dependency_errors_total{of="provider_a"} 0`)
	want := float64(vendor.Certificate().NotAfter.Unix())
	wantLine(`cutroom_certificate_expiry_timestamp_seconds{of="provider_a"} ` + strconv.FormatFloat(want, 'g', -1, 64))
	for _, status = range []int{401, 402, 429, 503} {
		ask(t.Context())
	}
	vendor.Close()
	ask(t.Context())
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	ask(late)
	wantLine(`cutroom_dependency_errors_total{of="provider_a"} 6`)
}

// A connection that PostgreSQL refuses is counted, a mistake in a statement not.
func TestFailuresOfTheDatabaseAreCounted(t *testing.T) {
	address, user, password := dbtest.URL(t)
	d := dbtest.Open(t, db.Options{URL: address, User: user, Password: password, MaxPool: 2})
	if _, err := d.Exec(t.Context(), "SELECT 1 FROM nowhere"); err == nil || d.Failures() != 0 {
		t.Errorf("%v; %d failures", err, d.Failures())
	}
	// The server ends the connection in the middle of a statement. One that it ends
	// before may be replaced in silence.
	if _, err := d.Exec(t.Context(), "SELECT pg_terminate_backend(pg_backend_pid())"); err == nil {
		t.Error("a connection that ends answers")
	}
	if d.Failures() == 0 {
		t.Error("the end of a connection counts as no failure")
	}
}
