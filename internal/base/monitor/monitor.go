// Package monitor reports unexpected failures to an error monitoring service that uses the Sentry protocol.
//
// Whatever the service logs at level Error is a failure of ours and is reported, so other packages only need to log:
// see [Monitor.Handler]. A client's mistakes are logged below that level. Reports contain no personal data: no user,
// address, header, query or body, and the text of errors is scrubbed.
package monitor

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/getsentry/sentry-go"
)

// Options configures a Monitor.
type Options struct {
	DSN         string // "" = off
	Environment string
	Release     string
}

// At most maxSame reports of the same failure are sent within quietFor, because a database that is down makes every
// request fail. At most maxKnown failures are distinguished.
const (
	quietFor = time.Minute
	maxSame  = 10
	maxKnown = 500
)

// Monitor sends reports in the background. A Monitor that is off does nothing. It is safe for concurrent use.
type Monitor struct {
	hub *sentry.Hub // nil = off

	mu   sync.Mutex
	seen map[string]*repeats // by failure
}

// repeats counts the reports of a failure since a time.
type repeats struct {
	since time.Time
	sent  int
}

// New returns a Monitor. Reports wait in memory until they are sent; see Flush.
func New(o Options) (*Monitor, error) {
	if o.DSN == "" {
		return &Monitor{}, nil
	}
	client, err := sentry.NewClient(sentry.ClientOptions{
		Dsn: o.DSN, Environment: o.Environment, Release: o.Release, ServerName: "cutroom",
		MaxBreadcrumbs: -1,
		BeforeSend:     withoutPerson,
	})
	if err != nil {
		// The library's message repeats the DSN, which is a secret.
		return nil, errors.New("MONITORING_DSN: not a usable address")
	}
	return &Monitor{hub: sentry.NewHub(client, sentry.NewScope()), seen: map[string]*repeats{}}, nil
}

// withoutPerson removes request and user from every event before it is sent, in case a library added them.
func withoutPerson(e *sentry.Event, _ *sentry.EventHint) *sentry.Event {
	e.Request, e.User, e.Breadcrumbs, e.Attachments = nil, sentry.User{}, nil, nil
	return e
}

// failure is one report.
type failure struct {
	what    string // constant text
	err     error  // may be nil
	request string // id, or ""
	route   string // pattern, or ""
}

// report sends a failure. It does not block: if the queue is full, the report is dropped.
func (m *Monitor) report(f failure) {
	if m.hub == nil {
		return
	}
	text := ""
	if f.err != nil {
		text = scrub(f.err)
	}
	if m.quiet(f.what + "\n" + f.route + "\n" + text) {
		return
	}
	e := sentry.NewEvent()
	e.Level, e.Message, e.Transaction = sentry.LevelError, f.what, f.route
	if f.request != "" {
		e.Tags["request"] = f.request
	}
	if text != "" {
		e.Exception = []sentry.Exception{{Type: f.what, Value: text, Stacktrace: stackOf(f.err)}}
	}
	// Use a separate scope: unrelated failures must not look like one trace.
	hub := m.hub.Clone()
	hub.Scope().SetPropagationContext(sentry.NewPropagationContext())
	hub.CaptureEvent(e)
}

// stackOf returns the stack in an error, for example of a caught panic, or else the caller's stack.
func stackOf(err error) *sentry.Stacktrace {
	type carrier interface {
		error
		StackTrace() []uintptr
	}
	if failed, ok := errors.AsType[carrier](err); ok {
		if stack := sentry.ExtractStacktrace(failed); stack != nil {
			return stack
		}
	}
	return sentry.NewStacktrace()
}

// quiet reports whether a failure was reported often enough recently.
func (m *Monitor) quiet(key string) bool {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.seen[key]
	if r == nil {
		if len(m.seen) >= maxKnown {
			clear(m.seen)
		}
		r = &repeats{}
		m.seen[key] = r
	}
	if now.Sub(r.since) >= quietFor {
		r.since, r.sent = now, 0
	}
	r.sent++
	return r.sent > maxSame
}

// Flush waits until all reports are sent, but not longer than limit.
func (m *Monitor) Flush(limit time.Duration) {
	if m.hub != nil {
		m.hub.Flush(limit)
	}
}

// Handler returns a log handler that passes every record to next and reports records at level Error. A report
// contains the scrubbed error ("err"), the id of the request ("request") and its route ("route"), and no other
// attribute. Only next decides what is logged.
func (m *Monitor) Handler(next slog.Handler) slog.Handler {
	if m.hub == nil {
		return next
	}
	return slog.NewMultiHandler(next, &reporter{monitor: m})
}

// reporter reports records.
type reporter struct {
	monitor *Monitor
	attrs   []slog.Attr // from With
}

// Enabled implements slog.Handler.
func (h *reporter) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelError }

// Handle implements slog.Handler.
func (h *reporter) Handle(_ context.Context, r slog.Record) error {
	f := failure{what: r.Message}
	for _, a := range h.attrs {
		f.take(a)
	}
	r.Attrs(func(a slog.Attr) bool { f.take(a); return true })
	h.monitor.report(f)
	return nil
}

func (f *failure) take(a slog.Attr) {
	v := a.Value.Resolve()
	switch a.Key {
	case "err":
		if err, ok := v.Any().(error); ok {
			f.err = err
		} else if s := v.String(); s != "" && v.Kind() == slog.KindString {
			f.err = errors.New(s)
		}
	case "request":
		f.request = v.String()
	case "route":
		f.route = v.String()
	}
}

// WithAttrs implements slog.Handler.
func (h *reporter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &reporter{h.monitor, slices.Concat(h.attrs, attrs)}
}

// WithGroup implements slog.Handler. The service's log has no groups.
func (h *reporter) WithGroup(string) slog.Handler { return h }
