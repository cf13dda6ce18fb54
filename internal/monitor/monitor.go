// Package monitor reports unexpected failures to an error monitoring service
// that speaks the Sentry protocol, and samples request traces.
//
// It is told of failures of ours only, never of a client's mistake, and sends
// no personal data: no user, no address, no header, no query, no body.
package monitor

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/getsentry/sentry-go"
)

// Options configures a Monitor.
type Options struct {
	DSN         string // "" = off
	Environment string
	Release     string
	TraceRate   float64 // 0..1
	// RequestID names the request a context belongs to, "" outside of one.
	RequestID func(ctx context.Context) string
}

// Monitor sends reports in the background. A Monitor that is off does nothing.
type Monitor struct {
	hub       *sentry.Hub
	requestID func(ctx context.Context) string
}

// New returns a Monitor. Reports wait in memory until they are sent; see Flush.
func New(o Options) (*Monitor, error) {
	if o.DSN == "" {
		return &Monitor{}, nil
	}
	client, err := sentry.NewClient(sentry.ClientOptions{
		Dsn: o.DSN, Environment: o.Environment, Release: o.Release,
		EnableTracing: o.TraceRate > 0, TracesSampleRate: o.TraceRate,
		AttachStacktrace: true, SendDefaultPII: false, ServerName: "cutroom",
		BeforeSend: func(e *sentry.Event, _ *sentry.EventHint) *sentry.Event {
			e.Request, e.User = nil, sentry.User{}
			return e
		},
	})
	if err != nil {
		// The library's message repeats the DSN, which is a secret.
		return nil, fmt.Errorf("MONITORING_DSN: not a usable address")
	}
	return &Monitor{hub: sentry.NewHub(client, sentry.NewScope()), requestID: o.RequestID}, nil
}

// Report sends an unexpected failure. It does not block.
func (m *Monitor) Report(ctx context.Context, err error) {
	if m.hub == nil || err == nil {
		return
	}
	hub := m.hub.Clone()
	if id := m.requestID(ctx); id != "" {
		hub.Scope().SetTag("request", id)
	}
	hub.CaptureException(err)
}

// Trace wraps the public handler: a sampled share of requests is reported with
// its route's method and path shape and its time. name gives that shape, so
// that ids in paths are not sent.
func (m *Monitor) Trace(next http.Handler, name func(r *http.Request) string) http.Handler {
	if m.hub == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := sentry.SetHubOnContext(r.Context(), m.hub.Clone())
		span := sentry.StartTransaction(ctx, name(r), sentry.WithOpName("http.server"))
		defer span.Finish()
		next.ServeHTTP(w, r)
	})
}

// Flush waits for reports to leave, at most for the given time.
func (m *Monitor) Flush(limit time.Duration) {
	if m.hub != nil {
		m.hub.Flush(limit)
	}
}
