package ops

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"cutroom/internal/db"
	"cutroom/internal/httpcall"
)

// Dependencies counts failed requests to other services: no answer, a 5xx, or a refusal of the service itself.
// It also records when their certificates expire, and which certificates this process refuses. A nil
// Dependencies counts nothing.
type Dependencies struct {
	errors  *prometheus.CounterVec
	expiry  *prometheus.GaugeVec
	refused *prometheus.GaugeVec
	db      *db.DB
}

const (
	dependencyErrors     = "cutroom_dependency_errors_total"
	dependencyErrorsHelp = "Requests of this process that got no answer, a 5xx, or a refusal of the service itself."
)

// databaseErrorsDesc is the series that package db counts.
var databaseErrorsDesc = prometheus.NewDesc(dependencyErrors, dependencyErrorsHelp, []string{"of"}, nil)

// NewDependencies returns a collector to register.
func NewDependencies(d *db.DB) *Dependencies {
	return &Dependencies{db: d, errors: newCounter(dependencyErrors, dependencyErrorsHelp, "of"),
		expiry: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "cutroom_certificate_expiry_timestamp_seconds",
			Help: "When a certificate that this process saw last, or trusts, runs out."}, []string{"of"}),
		refused: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "cutroom_certificate_refused",
			Help: "1 while this process refuses the certificate that it saw last."}, []string{"of"})}
}

// Client returns a copy of base whose requests count as requests to the named dependency.
func (d *Dependencies) Client(name string, base *http.Client) *http.Client {
	if d == nil {
		return base
	}
	c := *base
	c.Transport = d.Transport(name, base.Transport)
	return &c
}

// Transport returns next with its requests counted as requests to the named dependency.
func (d *Dependencies) Transport(name string, next http.RoundTripper) http.RoundTripper {
	if d == nil {
		return next
	}
	d.errors.WithLabelValues(name) // exports 0 from the start
	return &countingTransport{next: next, name: name, dependencies: d}
}

// SetExpiry records when a certificate expires.
func (d *Dependencies) SetExpiry(name string, at time.Time) {
	if d != nil {
		d.expiry.WithLabelValues(name).Set(float64(at.Unix()))
	}
}

type countingTransport struct {
	next         http.RoundTripper
	name         string
	dependencies *Dependencies
}

// RoundTrip implements http.RoundTripper.
func (t *countingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil && canceled(req.Context()) {
		return resp, err
	}
	if err != nil || isServiceFailure(resp.StatusCode) {
		t.dependencies.errors.WithLabelValues(t.name).Inc()
	}
	if refused, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		t.dependencies.sawCertificate(t.name, refused.UnverifiedCertificates, 1)
	}
	if err == nil && resp.TLS != nil {
		t.dependencies.sawCertificate(t.name, resp.TLS.PeerCertificates, 0)
	}
	return resp, err
}

func (d *Dependencies) sawCertificate(name string, chain []*x509.Certificate, refused float64) {
	if len(chain) > 0 {
		d.SetExpiry(name, chain[0].NotAfter)
		d.refused.WithLabelValues(name).Set(refused)
	}
}

func isServiceFailure(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusTooManyRequests:
		return true
	default:
		return status >= http.StatusInternalServerError
	}
}

// canceled reports that the caller stopped waiting, which is not the dependency's failure.
func canceled(ctx context.Context) bool {
	return errors.Is(ctx.Err(), context.Canceled) && !errors.Is(context.Cause(ctx), httpcall.ErrIdle)
}

// Describe implements prometheus.Collector.
func (d *Dependencies) Describe(ch chan<- *prometheus.Desc) {
	d.errors.Describe(ch)
	d.expiry.Describe(ch)
	d.refused.Describe(ch)
}

// Collect implements prometheus.Collector.
func (d *Dependencies) Collect(ch chan<- prometheus.Metric) {
	if at := d.db.CertificateExpiry(); !at.IsZero() {
		d.SetExpiry("database", at)
		d.refused.WithLabelValues("database").Set(gauge(d.db.CertificateRefused()))
	}
	d.errors.Collect(ch)
	d.expiry.Collect(ch)
	d.refused.Collect(ch)
	ch <- prometheus.MustNewConstMetric(databaseErrorsDesc, prometheus.CounterValue, float64(d.db.Failures()), "database")
}
