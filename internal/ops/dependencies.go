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
}

// NewDependencies returns a Dependencies whose Collectors are to be registered.
func NewDependencies() *Dependencies {
	return &Dependencies{
		errors: newCounter("cutroom_dependency_errors_total",
			"Requests of this process that got no answer, a 5xx, or a refusal of the service itself.", "of"),
		expiry: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "cutroom_certificate_expiry_timestamp_seconds",
			Help: "When a certificate that this process saw last, or trusts, runs out."}, []string{"of"}),
		refused: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "cutroom_certificate_refused",
			Help: "1 while this process refuses the certificate that it saw last."}, []string{"of"})}
}

// Collectors returns the metrics.
func (d *Dependencies) Collectors() []prometheus.Collector {
	return []prometheus.Collector{d.errors, d.expiry, d.refused}
}

// Database returns the observer that counts failures of the database.
func (d *Dependencies) Database() db.Observer {
	d.errors.WithLabelValues("database") // exports 0 from the start
	return database{d}
}

type database struct{ *Dependencies }

// Failed implements db.Observer.
func (d database) Failed() { d.errors.WithLabelValues("database").Inc() }

// SawCertificate implements db.Observer.
func (d database) SawCertificate(chain []*x509.Certificate, refused bool) {
	d.sawCertificate("database", chain, gauge(refused))
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
