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
	return &handler{next: next, monitor: m}
}

type handler struct {
	next    slog.Handler
	monitor *Monitor
	attrs   []slog.Attr // from With, outside of groups
	grouped bool
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelError || h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		f := failure{what: r.Message}
		for _, a := range h.attrs {
			f.take(a)
		}
		if !h.grouped {
			r.Attrs(func(a slog.Attr) bool { f.take(a); return true })
		}
		h.monitor.report(f)
	}
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
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
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.next = h.next.WithAttrs(attrs)
	if !h.grouped {
		c.attrs = append(slices.Clip(h.attrs), attrs...)
	}
	return &c
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	c := *h
	c.next, c.grouped = h.next.WithGroup(name), true
	return &c
}
