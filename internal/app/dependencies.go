package app

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"cutroom/internal/db"
	"cutroom/internal/httpcall"
)

// dependencies counts the requests to other services that got no answer, or a
// refusal of the service itself, and remembers when their certificates end. The
// separation provider is not among them: its calls are rows of the database.
type dependencies struct {
	mu     sync.Mutex
	errors map[string]int
	expiry map[string]time.Time
	db     *db.DB
}

var (
	dependencyErrorsDesc = prometheus.NewDesc("cutroom_dependency_errors_total",
		"Requests of this process that got no answer, a 5xx, or a refusal of the service itself.", []string{"of"}, nil)
	certificateDesc = prometheus.NewDesc("cutroom_certificate_expiry_timestamp_seconds",
		"When a certificate that this process saw last, or trusts, runs out.", []string{"of"}, nil)
)

// newDependencies returns a count that shows its zeros from the start.
func newDependencies(d *db.DB) *dependencies {
	return &dependencies{errors: map[string]int{}, expiry: map[string]time.Time{}, db: d}
}

// client returns base with its requests counted as those of a dependency.
func (d *dependencies) client(of string, base *http.Client) *http.Client {
	if d == nil {
		return base
	}
	d.mu.Lock()
	d.errors[of] += 0
	d.mu.Unlock()
	c := *base
	c.Transport = &watched{next: base.Transport, of: of, by: d}
	return &c
}

// expires notes when a certificate runs out.
func (d *dependencies) expires(of string, at time.Time) {
	if d != nil {
		d.mu.Lock()
		d.expiry[of] = at
		d.mu.Unlock()
	}
}

// watched is a transport whose requests are counted.
type watched struct {
	next http.RoundTripper
	of   string
	by   *dependencies
}

// RoundTrip implements http.RoundTripper.
func (w *watched) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := w.next.RoundTrip(req)
	if err != nil {
		if !hungUp(req.Context()) {
			w.count()
		}
		return resp, err
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		w.count()
	default:
		if resp.StatusCode >= http.StatusInternalServerError {
			w.count()
		}
	}
	if resp.TLS != nil && len(resp.TLS.PeerCertificates) > 0 {
		w.by.expires(w.of, resp.TLS.PeerCertificates[0].NotAfter)
	}
	return resp, nil
}

func (w *watched) count() {
	w.by.mu.Lock()
	w.by.errors[w.of]++
	w.by.mu.Unlock()
}

// hungUp reports that the caller no longer waits, which is no failure.
func hungUp(ctx context.Context) bool {
	return errors.Is(ctx.Err(), context.Canceled) && !errors.Is(context.Cause(ctx), httpcall.ErrIdle)
}

// Describe implements prometheus.Collector.
func (d *dependencies) Describe(ch chan<- *prometheus.Desc) {
	ch <- dependencyErrorsDesc
	ch <- certificateDesc
}

// Collect implements prometheus.Collector.
func (d *dependencies) Collect(ch chan<- prometheus.Metric) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(dependencyErrorsDesc, prometheus.CounterValue, float64(d.db.Failures()), "database")
	for of, n := range d.errors {
		ch <- prometheus.MustNewConstMetric(dependencyErrorsDesc, prometheus.CounterValue, float64(n), of)
	}
	if at := d.db.CertificateExpiry(); !at.IsZero() {
		ch <- prometheus.MustNewConstMetric(certificateDesc, prometheus.GaugeValue, float64(at.Unix()), "database")
	}
	for of, at := range d.expiry {
		ch <- prometheus.MustNewConstMetric(certificateDesc, prometheus.GaugeValue, float64(at.Unix()), of)
	}
}
