package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/base/rescue"
)

// WithLimit bounds each write of a worker to its job's row. A database without its synchronous standby lets commits
// hang, and a write that hangs keeps the row locked, so that the lease could not be renewed.
func WithLimit(ctx context.Context) context.Context { return db.WithLimit(ctx, heartbeat/2) }

// AfterOutages wraps the work of [Poll], which claims jobs whose leases ran out. During an outage the leases of living
// workers run out as well, so after a failure the work waits until the database has answered for long enough that these
// workers have renewed theirs.
func (k *Renewer) AfterOutages(work func(ctx context.Context) (bool, error)) func(ctx context.Context) (bool, error) {
	failed := false
	return func(ctx context.Context) (more bool, err error) {
		if failed {
			ping, cancel := context.WithTimeout(ctx, heartbeat)
			defer cancel()
			if err := k.db.Ping(ping); err != nil {
				return false, fmt.Errorf("ask whether the database is back: %w", err)
			}
			select {
			case <-ctx.Done():
				return false, nil
			case <-time.After(heartbeat + retryPause):
			}
		}
		failed = true // after a panic as well
		more, err = work(ctx)
		failed = err != nil
		return more, err
	}
}

// Poll calls work until work reports that nothing is left, then again whenever wake receives and at least every
// interval, until ctx ends. After an error or a panic it waits as for an empty queue, and logs it once a minute while
// it lasts.
func Poll(ctx context.Context, log *slog.Logger, name string, wake <-chan struct{}, every time.Duration,
	work func(ctx context.Context) (bool, error)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var outage fault.Outage
	for {
		for ctx.Err() == nil {
			var more bool
			err := rescue.Do(func() (err error) { more, err = work(ctx); return err })
			if err != nil && ctx.Err() == nil {
				kind := ""
				if p := (*rescue.PanicError)(nil); errors.As(err, &p) {
					kind = err.Error()
				}
				outage.Log(log, slog.LevelError, kind, "worker", "name", name, "err", err)
			}
			if err != nil || !more {
				break
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-tick.C:
		}
		// The next call answers all wake-ups that came during the work.
		drain(wake)
		drain(tick.C)
	}
}

// drain empties a channel with a buffer of one.
func drain[T any](c <-chan T) {
	select {
	case <-c:
	default:
	}
}

// Retry rides out a short failure of our own database or store: it makes five attempts over about fifteen seconds. It
// does not retry for a job that has moved on.
func Retry(ctx context.Context, try func() error) error {
	wait := time.Second
	for attempt := 1; ; attempt++ {
		err := try()
		if err == nil || errors.Is(err, ErrMoved) || attempt == 5 || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
		wait *= 2
	}
}
