package monitor

import (
	"context"
	"errors"
	"log/slog"
	"slices"
)

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
