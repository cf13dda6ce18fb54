package httpapi_test

import (
	"log/slog"
	"sync/atomic"
	"testing"
)

// alarm is the output of a log that fails the test if the API reports an internal error, unless the test expects one.
type alarm struct {
	t        testing.TB
	expected *atomic.Bool // nil: never
}

func (a alarm) Write(line []byte) (int, error) {
	if a.expected == nil || !a.expected.Load() {
		a.t.Errorf("failure of ours: %s", line)
	}
	return len(line), nil
}

func (a alarm) handler() slog.Handler {
	return slog.NewTextHandler(a, &slog.HandlerOptions{Level: slog.LevelError})
}
