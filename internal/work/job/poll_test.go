package job_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"cutroom/internal/work/job"
)

// Poll works until there is nothing. After an error or a panic it waits as for an empty queue.
func TestPoll(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var log bytes.Buffer
	wake := make(chan struct{}, 2) // a call that did not wait must not hang
	calls := 0
	job.Poll(ctx, slog.New(slog.NewTextHandler(&log, nil)), "test", wake, time.Hour, func(context.Context) (more bool, err error) {
		calls++
		if len(wake) > 0 {
			t.Errorf("call %d did not wait", calls)
		}
		switch calls {
		case 1, 2:
			return true, nil
		case 3:
			wake <- struct{}{}
			return false, nil
		case 4:
			wake <- struct{}{}
			return true, errors.New("broken")
		case 5:
			wake <- struct{}{}
			panic("boom")
		}
		cancel()
		return false, nil
	})
	if calls != 6 || !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "panic: boom") {
		t.Errorf("%d calls, log: %s", calls, log.String())
	}
}
