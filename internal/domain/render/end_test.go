package render

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/film/engine"
	"cutroom/internal/film/media"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/testkit/jobtest"
	"cutroom/internal/work/job"
)

func TestDecisions(t *testing.T) {
	const first, last = 1, job.MaxAttempts
	broken, protected := errors.New("boom"), fault.Failedf(fault.SourceProtected, "segments[0]: the file is encrypted")
	late := fault.Failedf(fault.TimedOut, "it took too long")
	for _, tt := range []struct {
		name     string
		attempts int
		c        circumstances
		err      error
		want     job.Outcome
	}{
		{name: "taken", attempts: last, c: circumstances{taken: true, stopped: true, overdue: late}, err: broken},
		{name: "stopped", attempts: last, c: circumstances{stopped: true, overdue: late}, err: protected, want: again(retry{forgive: true})},
		{name: "overdue", attempts: first, c: circumstances{overdue: late, unable: broken}, err: broken, want: failed(late, slog.LevelInfo)},
		{name: "no room", attempts: last, c: circumstances{unable: broken, free: 1 << 40}, err: fmt.Errorf("part: %w", engine.ErrNoSpace),
			want: again(retry{forgive: true, needsBytes: 1<<40 + 1<<40/10})},
		{name: "hardly any room", attempts: last, err: engine.ErrNoSpace, want: again(retry{forgive: true, needsBytes: 64 << 20})},
		{name: "a broken replica", attempts: last, c: circumstances{unable: broken}, err: protected, want: again(retry{forgive: true})},
		{name: "no store", attempts: last, err: objectstore.ErrUnavailable, want: again(retry{forgive: true, pause: 10 * time.Second})},
		{name: "no database", attempts: last, err: db.ErrUnavailable, want: again(retry{forgive: true, pause: time.Second})},
		{name: "a bad source", attempts: first, err: fmt.Errorf("render: %w", protected), want: failed(protected, slog.LevelInfo)},
		{name: "a bug", attempts: first, err: broken, want: again(retry{pause: time.Second})},
		{name: "a bug again", attempts: last, err: broken, want: failed(errInternal, slog.LevelError)},
		{name: "slow", attempts: first, err: media.ErrTimeout, want: again(retry{pause: time.Second})},
		{name: "slow again", attempts: last, err: media.ErrTimeout, want: failed(errSlow, slog.LevelError)},
	} {
		if got := decide(tt.attempts, tt.c, tt.err); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
	for failure, want := range map[*fault.Error]fault.Reason{errInternal: fault.Unexplained, errSlow: fault.TimedOut} {
		if failure.Reason != want || failure.Sentence == "" {
			t.Errorf("%+v, want the reason %s", failure, want)
		}
	}
}

// If the answer to the commit of a completion is lost, the render has ended and nobody has taken it away.
func TestALostAnswerEndsARender(t *testing.T) {
	t.Parallel()
	var lost atomic.Bool
	direct, lossy := dbtest.Lossy(t, func(d *db.DB) bool {
		var n int
		err := d.QueryRow(context.WithoutCancel(t.Context()), `SELECT COUNT(*) FROM jobs WHERE state = 'COMPLETED'`).Scan(&n)
		return err == nil && n > 0 && lost.CompareAndSwap(false, true)
	})
	r := newHarness(t, direct)
	s := r.service(&jobtest.Engine{}, lossy)
	log := logged(s)
	r.enqueue(1, r.User(0), nil)
	if over := s.work(t.Context(), r.claimed(s)); !over || !lost.Load() || r.in(StateCompleted) != 1 {
		t.Errorf("over %v, lost %v, %d jobs completed", over, lost.Load(), r.in(StateCompleted))
	}
	if text := log.String(); !strings.Contains(text, "render ended") || strings.Contains(text, "taken away") {
		t.Errorf("log:\n%s", text)
	}
}
