package job_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"cutroom/internal/job"
)

func TestGuardTurnsAPanicIntoAnErrorThatSaysWhere(t *testing.T) {
	var list []int
	err := job.Recover(func() error { list[3] = 1; return nil })
	var p *job.PanicError
	if !errors.As(err, &p) {
		t.Fatalf("err = %v, want a PanicError", err)
	}
	for _, want := range []string{"panic: runtime error: index out of range [3]", "TestGuardTurnsAPanicIntoAnErrorThatSaysWhere"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "\n") || len(p.StackTrace()) == 0 {
		t.Errorf("text %q, %d callers", err, len(p.StackTrace()))
	}
	plain := errors.New("plain")
	if err := job.Recover(func() error { return plain }); err != plain {
		t.Errorf("an error becomes %v", err)
	}
}

func TestPollOutlivesAPanic(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var log bytes.Buffer
	wake := make(chan struct{}, 1)
	calls := 0
	job.Poll(ctx, slog.New(slog.NewTextHandler(&log, nil)), "test queue", wake, time.Hour, func(context.Context) (bool, error) {
		if calls++; calls == 1 {
			wake <- struct{}{}
			panic("boom")
		}
		cancel()
		return false, nil
	})
	if calls != 2 {
		t.Errorf("work ran %d times, want 2", calls)
	}
	if !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "panic: boom") {
		t.Errorf("log %q does not tell of the panic", log.String())
	}
}
