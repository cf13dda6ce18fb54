package httpapi_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
)

// alarm is a log that fails the test if the API reports an internal error, unless the
// test expects one.
type alarm struct {
	t        testing.TB
	expected *atomic.Bool // nil: never
	attrs    []slog.Attr
}

func (a alarm) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelError }

func (a alarm) Handle(_ context.Context, r slog.Record) error {
	if a.expected != nil && a.expected.Load() {
		return nil
	}
	attrs := a.attrs
	r.Attrs(func(at slog.Attr) bool { attrs = append(attrs, at); return true })
	a.t.Errorf("failure of ours: %s %v", r.Message, attrs)
	return nil
}

func (a alarm) WithAttrs(attrs []slog.Attr) slog.Handler {
	a.attrs = append(append([]slog.Attr(nil), a.attrs...), attrs...)
	return a
}

func (a alarm) WithGroup(string) slog.Handler { return a }
