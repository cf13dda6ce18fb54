package ops

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"cutroom/internal/base/db"
	"cutroom/internal/base/httpcall"
)

// Dependencies counts failed requests to other services: no answer, a 5xx, or a refusal of the service itself. It also
// records when their certificates expire, and which certificates this process refuses. A nil Dependencies counts
// nothing.
type Dependencies struct {
	errors  *prometheus.CounterVec
	expiry  *prometheus.GaugeVec
	refused *prometheus.GaugeVec
}

// NewDependencies returns a Dependencies whose metrics are in the registry.
func NewDependencies(r prometheus.Registerer) *Dependencies {
	return &Dependencies{
		errors: newCounter(r, "cutroom_dependency_errors_total",
			"Requests of this process that got no answer, a 5xx, or a refusal of the service itself.", "of"),
		expiry: newGauges(r, "cutroom_certificate_expiry_timestamp_seconds",
			"When a certificate that this process saw last, or trusts, runs out.", "of"),
		refused: newGauges(r, "cutroom_certificate_refused",
			"1 while this process refuses the certificate that it saw last.", "of"),
	}
}

// Database returns the observer that counts failures of the database.
func (d *Dependencies) Database() db.Observer { return d.named("database") }

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
	return &countingTransport{dependency: d.named(name), next: next}
}

// SetExpiry records when a certificate expires.
func (d *Dependencies) SetExpiry(name string, at time.Time) {
	if d != nil {
		d.expiry.WithLabelValues(name).Set(float64(at.Unix()))
	}
}

// dependency is one of the services.
type dependency struct {
	*Dependencies
	name string
}

func (d *Dependencies) named(name string) dependency {
	d.errors.WithLabelValues(name) // exports 0 from the start
	return dependency{d, name}
}

// Failed implements db.Observer.
func (d dependency) Failed() { d.errors.WithLabelValues(d.name).Inc() }

// SawCertificate implements db.Observer.
func (d dependency) SawCertificate(chain []*x509.Certificate, refused bool) {
	if len(chain) > 0 {
		d.SetExpiry(d.name, chain[0].NotAfter)
		d.refused.WithLabelValues(d.name).Set(gauge(refused))
	}
}

type countingTransport struct {
	dependency
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *countingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil && canceled(req.Context()) {
		return resp, err
	}
	if err != nil || httpcall.IsFailure(resp.StatusCode) {
		t.Failed()
	}
	if refused, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		t.SawCertificate(refused.UnverifiedCertificates, true)
	}
	if err == nil && resp.TLS != nil {
		t.SawCertificate(resp.TLS.PeerCertificates, false)
	}
	return resp, err
}

// canceled reports that the caller stopped waiting, which is not the dependency's failure.
func canceled(ctx context.Context) bool {
	return errors.Is(ctx.Err(), context.Canceled) && !errors.Is(context.Cause(ctx), httpcall.ErrIdle)
}
