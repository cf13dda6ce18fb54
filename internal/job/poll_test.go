package job_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"cutroom/internal/job"
)

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
		t.Errorf("log %q does not contain the panic", log.String())
	}
}
