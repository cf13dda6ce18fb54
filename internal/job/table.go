package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"cutroom/internal/cursor"
	"cutroom/internal/db"
	"cutroom/internal/fault"
	"cutroom/internal/rescue"
	"cutroom/internal/tracing"
	"cutroom/internal/user"
)

// Table is one kind of job, with the moves that all kinds share. Beside the columns
// of a lease its rows have user_id, state, attempts, progress, replica, error,
// error_code, failure_cause, created_at, finished_at and deleted_at.
type Table struct {
	Name   string // of the table, a constant of the program
	Prefix string // of every id
	Topic  string // wakes the workers of every replica
	// Attempt is the name of an attempt's span.
	Attempt string

	DB      *db.DB
	Renewer *Renewer
	Folder  string // holds the work folders on this disk
	Tracer  *tracing.Tracer
	// Observer counts for metrics; nil counts nothing.
	Observer Observer
	Log      *slog.Logger

	// Ended runs in the transaction that ends a job, whichever way it ends, except
	// when its owner deletes it.
	Ended func(ctx context.Context, tx *db.Tx, e End) error
	// Unknown is the answer for a job that does not exist or has another owner.
	Unknown error
}

// Observer counts what metrics tell of jobs.
type Observer interface {
	// Stage took that long: "wait" until the first attempt, "total" until the job
	// succeeded, and what a kind of job names between.
	Stage(stage string, took time.Duration)
	// Ended is called in the transaction that ends a job in a state.
	Ended(state string)
}

// Claim is one worker's attempt at a job.
type Claim struct {
	Lease
	UserID   string
	Attempts int // this one included, which counts once its work has begun
}

// End is how a job ended.
type End struct {
	ID, UserID string
	State      string
	Reason     fault.Reason // "" unless the job failed
}

// Lease names a claimed row.
func (t Table) Lease(id string, fence int64) Lease { return Lease{Table: t.Name, ID: id, Fence: fence} }

// AttemptLog is the log of one attempt.
func (t Table) AttemptLog(c Claim) *slog.Logger {
	return t.Log.With("job", c.ID, "owner", c.UserID, "replica", t.Renewer.Owner(), "attempt", c.Attempts)
}

// lastWrite bounds what a worker writes when its work has ended.
const lastWrite = 10 * time.Second

// Work runs one attempt in a work folder, which it removes afterwards. do gets a
// context that ends when the lease is lost. settle writes down what came of the
// attempt, in a context that outlives a stop of the service. taken reports that another
// worker holds the job, or that its row was deleted with its owner.
func (t Table) Work(ctx context.Context, c Claim, do func(ctx context.Context, dir string) error,
	settle func(last context.Context, taken bool, err error)) {
	holder := t.Renewer.hold(ctx, c.Lease)
	defer holder.release()
	held, ended := t.Trace(holder.work, t.Attempt, c.ID)
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

// observeAge reports how long ago a job was submitted, or how long it took.
func (t Table) observeAge(ctx context.Context, stage, id string) {
	if t.Observer == nil {
		return
	}
	var ms int64
	if t.DB.QueryRow(ctx, `SELECT COALESCE(finished_at, now_ms()) - created_at FROM `+t.Name+` WHERE id = $1`, id).Scan(&ms) == nil {
		t.Observer.Stage(stage, time.Duration(ms)*time.Millisecond)
	}
}

// Begin counts the attempt. A claim does not: its commit may take place although the
// answer is lost, and then no worker has the job.
func (t Table) Begin(ctx context.Context, c Claim) error {
	return Retry(ctx, func() error {
		return Guarded(t.DB.Exec(Briefly(ctx), `UPDATE `+t.Name+` SET attempts = $3 WHERE id = $1 AND fence = $2`, c.ID, c.Fence, c.Attempts))
	})
}

// Return says how a worker gives a job back.
type Return struct {
	From, To string
	Forgive  bool          // the attempt does not count
	Pause    time.Duration // until the job may be claimed again
	// Set is further assignments, each after a comma, and And a further condition;
	// their parameters begin with $7.
	Set, And string
	Args     []any
	Topics   []string // to notify as well
}

// HandBack gives a claimed job back, at its place in the queue. It reports false when
// the job was no longer the claim's.
func (t Table) HandBack(ctx context.Context, c Claim, r Return) (moved bool, err error) {
	var attempts any // NULL keeps what is written
	if r.Forgive {
		attempts = c.Attempts - 1
	}
	var pauseMs any // NULL unless there is a pause
	if r.Pause > 0 {
		pauseMs = r.Pause.Milliseconds()
	}
	err = t.DB.InTx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE `+t.Name+` SET state = $4, attempts = COALESCE($5, attempts), fence = fence + 1,
				replica = COALESCE(lease_owner, replica), lease_owner = NULL, lease_until = now_ms() + $6`+r.Set+`
			WHERE id = $1 AND fence = $2 AND state = $3`+r.And,
			append([]any{c.ID, c.Fence, r.From, r.To, attempts, pauseMs}, r.Args...)...)
		if err != nil {
			return fmt.Errorf("hand job back: %w", err)
		}
		if moved = n == 1; !moved {
			return nil
		}
		return Announce(ctx, tx, c.ID, append(r.Topics, t.Topic)...)
	})
	return moved, err
}

// NoteLostWorker is an assignment, after a comma, which adds the dead worker of a job to the cause that support
// reads if the job fails.
const NoteLostWorker = `, failure_cause = COALESCE(failure_cause || ', ', 'lost workers: ') || COALESCE(lease_owner, 'unknown')`

// Complete ends a claimed job that succeeded. Set is further assignments,
// each after a comma, with parameters from $4 on; clock.ms is the time of the end.
func (t Table) Complete(ctx context.Context, tx *db.Tx, c Claim, state, set string, args ...any) error {
	// Read the clock once, so that times computed from finished_at agree with it.
	err := Guarded(tx.Exec(ctx, `UPDATE `+t.Name+` SET state = $3, progress = 100, finished_at = clock.ms,
			replica = lease_owner, lease_owner = NULL, lease_until = NULL`+set+` FROM (SELECT now_ms() AS ms) AS clock
		WHERE id = $1 AND fence = $2 AND state = 'PROCESSING'`, append([]any{c.ID, c.Fence, state}, args...)...))
	if err != nil {
		return err
	}
	return t.end(ctx, tx, End{ID: c.ID, UserID: c.UserID, State: state})
}

// Fail moves the jobs of a condition to FAILED and takes them from their workers. Its
// parameters begin with $4. The owner reads the sentence and the reason of failure; support
// reads cause, or without one the workers that were lost.
func (t Table) Fail(ctx context.Context, tx *db.Tx, failure *fault.Error, cause error, where string, args ...any) ([]End, error) {
	reason := cmp.Or(failure.Reason, fault.Unexplained)
	ends, err := db.All(ctx, tx, func(row db.Scanner) (End, error) {
		e := End{State: "FAILED", Reason: reason}
		err := row.Scan(&e.ID, &e.UserID)
		return e, err
	}, `UPDATE `+t.Name+` SET state = 'FAILED', error = $1, error_code = $2, finished_at = now_ms(),
			failure_cause = COALESCE(NULLIF($3, ''), failure_cause || COALESCE(', ' || lease_owner, '')),
			replica = COALESCE(lease_owner, replica), lease_owner = NULL, lease_until = NULL, fence = fence + 1
		WHERE `+where+` RETURNING id, user_id`, append([]any{failure.Answer(), string(reason), fault.Cause(cause)}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("fail jobs: %w", err)
	}
	for _, e := range ends {
		if err := t.end(ctx, tx, e); err != nil {
			return nil, err
		}
	}
	return ends, nil
}

// end runs for every job that ends, unless its owner deletes it.
func (t Table) end(ctx context.Context, tx *db.Tx, e End) error {
	if err := t.Ended(ctx, tx, e); err != nil {
		return err
	}
	if t.Observer != nil {
		t.Observer.Ended(e.State)
	}
	return Announce(ctx, tx, e.ID)
}

// Announce notifies the clients that wait for a change of a job, and the listeners of the
// topics.
func Announce(ctx context.Context, tx *db.Tx, id string, topics ...string) error {
	for _, topic := range append(topics, Topic(id)) {
		if err := tx.Notify(ctx, topic); err != nil {
			return err
		}
	}
	return nil
}

// Known is the condition that the user $1 owns job j and has not deleted it.
var Known = `j.user_id = $1 AND j.deleted_at IS NULL AND ` + user.Exists("j.user_id")

// Delete makes a job unknown to its owner and stops its worker. end ends the job's rows
// in the same transaction. erase removes its files; if it fails, the sweeps remove them.
func (t Table) Delete(ctx context.Context, owner, id string, end func(tx *db.Tx) error, erase func(ctx context.Context) error) error {
	err := t.DB.InTx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE `+t.Name+` AS j SET deleted_at = now_ms() WHERE j.id = $2 AND `+Known, owner, id)
		if err != nil {
			return fmt.Errorf("delete job: %w", err)
		}
		if n == 0 {
			return t.Unknown
		}
		if err := end(tx); err != nil {
			return err
		}
		return Announce(ctx, tx, id, revoked(id))
	})
	if err != nil {
		return err
	}
	// The client may hang up; the erasure goes on.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), eraseTimeout)
	defer cancel()
	if err := errors.Join(t.clearFolders(id), erase(ctx)); err != nil {
		t.Log.Warn("files of a deleted job left; the sweep will remove them", "job", id, "err", err)
	}
	return nil
}

// eraseTimeout bounds how long a client who deletes a job waits for the erasure of
// its files.
const eraseTimeout = 8 * time.Second

// Revoke takes a user's jobs of a condition away from their workers for good, removes
// the work folders of all the user's jobs from this disk, and returns their ids.
func (t Table) Revoke(ctx context.Context, userID, condition string) (ids []string, err error) {
	err = t.DB.InTx(ctx, func(tx *db.Tx) error {
		open, err := db.Texts(tx.Query(ctx, `UPDATE `+t.Name+` SET fence = fence + 1, lease_owner = NULL, lease_until = NULL
			WHERE user_id = $1 AND `+condition+` RETURNING id`, userID))
		if err != nil {
			return fmt.Errorf("stop jobs: %w", err)
		}
		for _, id := range open {
			err = errors.Join(err, tx.Notify(ctx, revoked(id)))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if ids, err = db.Texts(t.DB.Query(ctx, `SELECT id FROM `+t.Name+` WHERE user_id = $1`, userID)); err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	return ids, t.clearFolders(ids...)
}

// Expire deletes the jobs of a condition that ended longer ago than a lifetime.
func (t Table) Expire(ctx context.Context, lifetime time.Duration, condition string) error {
	_, err := t.DB.Exec(ctx, `DELETE FROM `+t.Name+` WHERE created_at < now_ms() - $1 AND finished_at < now_ms() - $1 AND `+condition,
		lifetime.Milliseconds())
	if err != nil {
		return fmt.Errorf("expire jobs: %w", err)
	}
	return nil
}

// Page returns a page of the owner's jobs, newest first, and the cursor of the next
// one, "" at the end. The columns are of job j.
func Page[T any](ctx context.Context, t Table, columns, owner string, p cursor.Page,
	scan func(db.Scanner) (T, error), of func(T) cursor.Cursor) (page []T, next string, err error) {
	page, next, err = cursor.List(ctx, t.DB, `SELECT `+columns+` FROM `+t.Name+` j WHERE `+Known+cursor.Newest("j.created_at", "j.id"),
		owner, p, scan, of, t.Prefix)
	if err != nil {
		err = fmt.Errorf("list jobs: %w", err)
	}
	return page, next, err
}
