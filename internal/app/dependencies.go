package app

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"cutroom/internal/db"
	"cutroom/internal/httpcall"
)

// dependencies counts the requests to other services that got no answer, or a
// refusal of the service itself, and remembers when their certificates end. The
// separation provider is not among them: its calls are rows of the database.
type dependencies struct {
	errors *prometheus.CounterVec
	expiry *prometheus.GaugeVec
	db     *db.DB
}

const (
	dependencyErrors     = "cutroom_dependency_errors_total"
	dependencyErrorsHelp = "Requests of this process that got no answer, a 5xx, or a refusal of the service itself."
)

// databaseErrorsDesc is the series that the database counts by itself.
var databaseErrorsDesc = prometheus.NewDesc(dependencyErrors, dependencyErrorsHelp, []string{"of"}, nil)

func newDependencies(d *db.DB) *dependencies {
	return &dependencies{db: d, errors: prometheus.NewCounterVec(prometheus.CounterOpts{Name: dependencyErrors, Help: dependencyErrorsHelp}, []string{"of"}),
		expiry: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "cutroom_certificate_expiry_timestamp_seconds",
			Help: "When a certificate that this process saw last, or trusts, runs out."}, []string{"of"})}
}

// client returns base with its requests counted as those of a dependency.
func (d *dependencies) client(of string, base *http.Client) *http.Client {
	if d == nil {
		return base
	}
	d.errors.WithLabelValues(of) // shows its zero from the start
	c := *base
	c.Transport = &watched{next: base.Transport, of: of, by: d}
	return &c
}

// expires notes when a certificate runs out.
func (d *dependencies) expires(of string, at time.Time) {
	if d != nil {
		d.expiry.WithLabelValues(of).Set(float64(at.Unix()))
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

func (w *watched) count() { w.by.errors.WithLabelValues(w.of).Inc() }

// hungUp reports that the caller no longer waits, which is no failure.
func hungUp(ctx context.Context) bool {
	return errors.Is(ctx.Err(), context.Canceled) && !errors.Is(context.Cause(ctx), httpcall.ErrIdle)
}

// Describe implements prometheus.Collector.
func (d *dependencies) Describe(ch chan<- *prometheus.Desc) {
	d.errors.Describe(ch)
	d.expiry.Describe(ch)
}

// Collect implements prometheus.Collector.
func (d *dependencies) Collect(ch chan<- prometheus.Metric) {
	if at := d.db.CertificateExpiry(); !at.IsZero() {
		d.expires("database", at)
	}
	d.errors.Collect(ch)
	d.expiry.Collect(ch)
	ch <- prometheus.MustNewConstMetric(databaseErrorsDesc, prometheus.CounterValue, float64(d.db.Failures()), "database")
}
