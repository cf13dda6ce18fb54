package ops

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"cutroom/internal/base/db"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/testkit/dbtest"
)

// A call that gets no answer, or that the dependency refuses to serve, counts as its failure. Cancelled calls, 404 and
// 400 do not.
func TestFailuresOfDependenciesAreCounted(t *testing.T) {
	d := dbtest.SQLite(t)
	r := startReplica(t, d)
	dependencies := NewDependencies(r.registry)
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

// An expired certificate is named to operators, and no longer counts as refused once it is renewed.
func TestRefusedCertificatesAreNamed(t *testing.T) {
	d := dbtest.SQLite(t)
	r := startReplica(t, d)
	dependencies := NewDependencies(r.registry)
	store := httptest.NewUnstartedServer(http.NotFoundHandler())
	store.Config.ErrorLog = log.New(io.Discard, "", 0) // of the handshakes that fail
	store.StartTLS()
	defer store.Close()
	client, expiry := store.Client(), store.Certificate().NotAfter
	now := expiry.Add(time.Hour)
	transport := client.Transport.(*http.Transport)
	transport.TLSClientConfig.Time, transport.DisableKeepAlives = func() time.Time { return now }, true
	client = dependencies.Client("bucket", client)
	r.ready.Store = objectstore.NewBucket(objectstore.BucketConfig{Endpoint: store.URL, Bucket: "b", AccessKeyID: "id",
		SecretAccessKey: "secret", HTTP: client})
	wantUnready(t, r, fmt.Sprintf("the object store takes no files, because its certificate is refused: x509: certificate has expired"+
		" or is not yet valid: current time %s is after %s", now.Format(time.RFC3339), expiry.Format(time.RFC3339)))
	for _, refused := range []string{"1", "0"} {
		if resp, err := client.Get(store.URL); err == nil {
			_ = resp.Body.Close() // nothing was written
		}
		for _, want := range []string{`cutroom_certificate_refused{of="bucket"} ` + refused, `cutroom_certificate_expiry_timestamp_seconds{of="bucket"} `} {
			if _, body := get(t, r.URL+"/metrics"); !strings.Contains(body, "\n"+want) {
				t.Errorf("no %s in\n%s", want, cutroomLines(body))
			}
		}
		now = expiry.Add(-time.Hour) // as after its renewal
	}
}

// A connection that PostgreSQL refuses is counted, a mistake in a statement not.
func TestFailuresOfTheDatabaseAreCounted(t *testing.T) {
	address, user, password := dbtest.URL(t)
	registry := prometheus.NewRegistry()
	dependencies := NewDependencies(registry)
	failures := func() (n float64) {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			for _, m := range family.GetMetric() {
				n += m.GetCounter().GetValue()
			}
		}
		return n
	}
	d := dbtest.Open(t, db.Options{URL: address, User: user, Password: password, MaxPool: 2, Observer: dependencies.Database()})
	if _, err := d.Exec(t.Context(), "SELECT 1 FROM nowhere"); err == nil || failures() != 0 {
		t.Errorf("%v; %v failures", err, failures())
	}
	// The server ends the connection in the middle of a statement. One that it ends before may be replaced in silence.
	if _, err := d.Exec(t.Context(), "SELECT pg_terminate_backend(pg_backend_pid())"); err == nil {
		t.Error("a connection that ends answers")
	}
	if failures() == 0 {
		t.Error("the end of a connection counts as no failure")
	}
}
