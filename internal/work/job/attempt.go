package job

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/rescue"
	"cutroom/internal/base/tracing"
)

// AttemptLog is the log of one attempt.
func (t Table) AttemptLog(c Claim) *slog.Logger {
	return t.Log.With("job", c.ID, "owner", c.UserID, "replica", t.Renewer.Owner(), "attempt", c.Attempts)
}

// lastWrite bounds the time of a worker's writes after its work has ended.
const lastWrite = 10 * time.Second

// Work runs one attempt in a work folder, which it removes afterwards. do gets a context that ends when the lease is
// lost. settle records the outcome of the attempt, in a context that outlives a stop of the service. taken reports that
// another worker holds the job, or that its row was deleted with its owner.
func (t Table) Work(ctx context.Context, c Claim, do func(ctx context.Context, dir string) error,
	settle func(last context.Context, taken bool, err error)) {
	holder := t.Renewer.KeepAlive(ctx, c.Lease)
	defer holder.Release()
	held, ended := t.Trace(holder.Work, t.Kind+".attempt", c.ID)
	if tracing.Recording(held) {
		t.AttemptLog(c).InfoContext(held, "attempt traced")
	}
	dir := t.WorkDir(c.Lease)
	defer os.RemoveAll(dir)
	err := t.Begin(held, c)
	defer func() { ended(err) }()
	if c.Attempts == 1 {
		t.observeAge(held, "wait", c.ID)
	}
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = rescue.Do(func() error { return do(held, dir) })
	}
	lost := errors.Is(context.Cause(held), ErrLost)
	if err != nil && errors.Is(context.Cause(held), ErrOutage) {
		lost = !holder.outlast(ctx)
		err = fmt.Errorf("%w: %w", ErrOutage, err)
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWrite)
	defer cancel()
	if err == nil {
		t.observeAge(last, "total", c.ID)
	}
	settle(last, err != nil && (lost || errors.Is(err, ErrMoved) || db.IsForeignKey(err)), err)
}

// observeAge reports how long ago a job was submitted or, if it has ended, how long it took.
func (t Table) observeAge(ctx context.Context, stage, id string) {
	if t.Observer == nil {
		return
	}
	var ms int64
	if t.DB.QueryRow(ctx, `SELECT COALESCE(finished_at, now_ms()) - created_at FROM jobs WHERE id = $1`, id).Scan(&ms) == nil {
		t.Observer.Stage(stage, time.Duration(ms)*time.Millisecond)
	}
}

// Begin counts the attempt. A claim does not count it: the claim may be committed although the answer is lost, and then
// no worker has the job.
func (t Table) Begin(ctx context.Context, c Claim) error {
	return Retry(ctx, func() error {
		return Guarded(t.DB.Exec(WithLimit(ctx), `UPDATE jobs SET attempts = $3 WHERE id = $1 AND fence = $2`, c.ID, c.Fence, c.Attempts))
	})
}

// Trace begins a span of work on a job, on whichever replica, in the trace of the request that submitted it. The
// returned function ends the span.
func (t Table) Trace(ctx context.Context, name, id string) (context.Context, func(error)) {
	if t.Tracer == nil {
		return ctx, func(error) {}
	}
	var parent sql.NullString
	if err := t.DB.QueryRow(ctx, `SELECT trace_parent FROM jobs WHERE id = $1`, id).Scan(&parent); err != nil {
		return ctx, func(error) {} // the work itself reports what is wrong with the database
	}
	return t.Tracer.Attempt(ctx, name, parent.String, id, t.Renewer.Owner())
}
