// Package job has what the two kinds of jobs, separations and renders, share: the table of
// jobs with its moves, the queue's line, and the lease by which one worker at a time holds
// a job.
//
// A claim sets lease_owner and lease_until and raises fence by one. The kind's package
// says which job is next; [Table] has the moves. The holder renews its lease by
// [Renewer.KeepAlive], which moves lease_until ahead. When it stops renewing, any worker
// may claim the job. Every write of a holder names its fence, so a holder that was only
// slow can no longer write.
//
// lease_until is compared with the database's clock alone, so the clocks of replicas
// need not agree.
package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"cutroom/internal/cursor"
	"cutroom/internal/db"
	"cutroom/internal/fault"
	"cutroom/internal/objectstore"
	"cutroom/internal/quota"
	"cutroom/internal/tracing"
	"cutroom/internal/user"
)

// The kinds of jobs.
const (
	Render     = "render"
	Separation = "separation"
)

// Kinds lists all of them.
var Kinds = []string{Render, Separation}

// The conditions of partial indexes, word for word: SQLite recognises an index by the text of its condition.
const (
	Waiting = `state IN ('QUEUED', 'PENDING')`
	AtWork  = `state IN ('SUBMITTING', 'PROCESSING')`
)

// What jobs count against the limits of the account $1: how many wait, and the bytes of their files.
var (
	WaitingJobs = `(SELECT COUNT(*) FROM jobs WHERE user_id = $1 AND ` + Waiting + `)`
	StoredBytes = quota.Bytes("stored_bytes", `jobs WHERE user_id = $1 AND stored_bytes > 0`)
)

// Unfinished is the condition that a job has not ended.
const Unfinished = `(` + Waiting + ` OR ` + AtWork + `)`

// Table is one kind of job in the table jobs, with the moves that all kinds share.
type Table struct {
	Kind   string // of [Kinds]
	Prefix string // of every id
	// QueueLock, unless "", makes jobs become visible in the order of created_at. Otherwise a job could be
	// claimed before an older one.
	QueueLock string

	DB      *db.DB
	Quota   *quota.Limits // of the owner; nil is none
	Renewer *Renewer
	Store   objectstore.Store
	Folder  string // holds the work folders on this disk
	Tracer  *tracing.Tracer
	// Observer counts for metrics; nil counts nothing.
	Observer Observer
	Log      *slog.Logger

	// Ended runs in the transaction that ends a job, whichever way it ends, except
	// when its owner deletes it.
	Ended func(ctx context.Context, tx *db.Tx, e End) error
	// Line, unless nil, keeps the queue's line. It runs at the end of each transaction in
	// which jobs of these owners begin or cease to wait or to be worked on.
	Line func(ctx context.Context, tx *db.Tx, owners []string) error
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
	Deleted    bool         // its owner has deleted it
	Asked      bool         // the provider has been asked
}

// details is the table with the kind's own columns.
func (t Table) details() string { return t.Kind + "s" }

// rows is the job j of this kind with its details d.
func (t Table) rows() string {
	return `jobs j JOIN ` + t.details() + ` d ON d.job_id = j.id AND j.kind = '` + t.Kind + `'`
}

// Take claims the job that pick selects, if it is still in state from, and moves it to
// another state. pick is a query for one id, whose parameters begin with $6. Ok reports whether there was one.
func (t Table) Take(ctx context.Context, tx *db.Tx, from, to, pick string, args ...any) (c Claim, ok bool, err error) {
	var m moved
	asked := time.Now()
	err = tx.QueryRow(ctx, `UPDATE jobs SET state = $2, started_at = COALESCE(started_at, now_ms()),
			lease_owner = $3, lease_until = now_ms() + $4, fence = fence + 1
		WHERE kind = $5 AND state = $1 AND id = (`+pick+`) RETURNING attempts + 1, fence, `+movedColumns,
		append([]any{from, to, t.Renewer.Owner(), TTL.Milliseconds(), t.Kind}, args...)...).
		Scan(append([]any{&c.Attempts, &c.Fence}, m.columns()...)...)
	if db.IsNoRows(err) {
		return c, false, nil
	}
	if err != nil {
		return c, false, fmt.Errorf("claim job: %w", err)
	}
	c.Lease, c.UserID = Lease{Table: "jobs", ID: m.ID, Fence: c.Fence, Asked: asked}, m.UserID
	return c, true, t.account(ctx, tx, from, to, m)
}

// Guard locks a claimed job's row until the transaction ends. It returns [ErrMoved] if the job has
// another holder or another state.
func (t Table) Guard(ctx context.Context, tx *db.Tx, c Claim, state string) error {
	held, err := db.HasRow(ctx, tx, `SELECT 1 FROM jobs WHERE id = $1 AND fence = $2 AND state = $3`+tx.ForUpdate(), c.ID, c.Fence, state)
	if err != nil {
		return fmt.Errorf("lock job: %w", err)
	}
	if !held {
		return ErrMoved
	}
	return nil
}

// Set writes details of a job whose row the transaction has locked. Parameters of the assignments begin with $2.
func (t Table) Set(ctx context.Context, tx *db.Tx, id, set string, args ...any) error {
	if set == "" {
		return nil
	}
	if _, err := tx.Exec(ctx, `UPDATE `+t.details()+` SET `+set+` WHERE job_id = $1`, append([]any{id}, args...)...); err != nil {
		return fmt.Errorf("write details of job: %w", err)
	}
	return nil
}

// Progress writes the percentage of a claimed job that is done, never a lower one, and details. Parameters of
// the assignments begin with $2.
func (t Table) Progress(ctx context.Context, c Claim, percent int, set string, args ...any) error {
	return t.DB.InTx(ctx, func(tx *db.Tx) error {
		if err := Guarded(tx.Exec(ctx, `UPDATE jobs SET progress = CASE WHEN progress < $3 THEN $3 ELSE progress END
			WHERE id = $1 AND fence = $2 AND state = 'PROCESSING'`, c.ID, c.Fence, percent)); err != nil {
			return err
		}
		if err := t.Set(ctx, tx, c.ID, set, args...); err != nil {
			return err
		}
		return Announce(ctx, tx, c.ID)
	})
}

// Ask records that the provider is about to be asked for a claimed job in a state, in one guarded update. It returns
// [ErrMoved] also if the owner's account is being deleted.
func (t Table) Ask(ctx context.Context, c Claim, state string) error {
	return Guarded(t.DB.Exec(ctx, `UPDATE jobs SET asked_at = now_ms() WHERE id = $1 AND fence = $2 AND state = $3 AND `+user.Exists("user_id"),
		c.ID, c.Fence, state))
}

// Withdraw takes back what [Table.Ask] recorded, because the provider was not asked or refused. The transaction
// has locked the job's row.
func (t Table) Withdraw(ctx context.Context, tx *db.Tx, id string) error {
	if _, err := tx.Exec(ctx, `UPDATE jobs SET asked_at = NULL WHERE id = $1`, id); err != nil {
		return fmt.Errorf("withdraw the intent of a job: %w", err)
	}
	return nil
}

// Wrote reports whether the worker of a claim has moved its job to a state. If the answer to the move was lost, a second
// try returns [ErrMoved], and the lease seems lost, although it was this worker that moved the job.
func (t Table) Wrote(ctx context.Context, q db.Querier, c Claim, state string) (bool, error) {
	return db.HasRow(ctx, q, `SELECT 1 FROM jobs WHERE id = $1 AND fence = $2 AND state = $3`, c.ID, c.Fence, state)
}

// CountBytes sets what the files of a job count for its owner, and locks the job's row. The files of a deleted job
// count nothing.
func CountBytes(ctx context.Context, tx *db.Tx, id string, bytes int64) error {
	if _, err := tx.Exec(ctx, `UPDATE jobs SET stored_bytes = CASE WHEN deleted_at IS NULL THEN CAST($2 AS BIGINT) ELSE 0 END WHERE id = $1`, id, bytes); err != nil {
		return fmt.Errorf("count bytes of job: %w", err)
	}
	return nil
}

// Return says how a worker gives a job back.
type Return struct {
	From, To string
	Forgive  bool          // the attempt does not count
	Spend    bool          // an attempt counts for work that went on from where it was
	Pause    time.Duration // until the job may be claimed again
	Lost     bool          // the worker gave no sign; support reads its name if the job fails
	// And is a further condition on the job, and Withdraw makes asked_at null.
	And      string
	Withdraw bool
	// Set is assignments of details; parameters begin with $2.
	Set    string
	Args   []any
	Topics []string // to notify as well
}

// MaxAttempts bounds how many workers may begin to work on a job and fail or die.
const MaxAttempts = 3

// Expired is the condition, after AND, that the lease of a job has run out.
const Expired = ` AND COALESCE(lease_until, 0) < now_ms()`

// Dead returns the claims of the jobs whose workers died and that have an attempt left. A worker may come back after an
// outage, so hand the jobs back with the condition [Expired].
func (t Table) Dead(ctx context.Context) ([]Claim, error) {
	dead, err := db.All(ctx, t.DB, func(row db.Scanner) (c Claim, err error) {
		c.Table = "jobs"
		err = row.Scan(&c.ID, &c.Fence, &c.UserID, &c.Attempts)
		return c, err
	}, `SELECT id, fence, user_id, attempts FROM jobs WHERE kind = $1 AND `+AtWork+Expired+` AND `+
		user.NotErasing("user_id")+` AND attempts < $2`, t.Kind, MaxAttempts)
	if err != nil {
		return nil, fmt.Errorf("look for jobs of dead workers: %w", err)
	}
	return dead, nil
}

// HandBack gives a claimed job back, at its place in the queue. It reports false when
// the job was no longer the claim's.
func (t Table) HandBack(ctx context.Context, c Claim, r Return) (ok bool, err error) {
	var attempts any // NULL keeps what is written
	if r.Forgive {
		attempts = c.Attempts - 1
	}
	if r.Spend {
		attempts = c.Attempts + 1
	}
	var pauseMs any // NULL unless there is a pause
	if r.Pause > 0 {
		pauseMs = r.Pause.Milliseconds()
	}
	set := ""
	if r.Lost {
		set += `, failure_cause = COALESCE(failure_cause || ', ', 'lost workers: ') || COALESCE(lease_owner, 'unknown')`
	}
	if r.Withdraw {
		set += `, asked_at = NULL`
	}
	err = t.DB.InTx(ctx, func(tx *db.Tx) error {
		var m moved
		err := tx.QueryRow(ctx, `UPDATE jobs SET state = $4, attempts = COALESCE($5, attempts), fence = fence + 1,
				replica = COALESCE(lease_owner, replica), lease_owner = NULL, lease_until = now_ms() + $6`+set+`
			WHERE id = $1 AND fence = $2 AND state = $3`+r.And+` RETURNING `+movedColumns,
			c.ID, c.Fence, r.From, r.To, attempts, pauseMs).Scan(m.columns()...)
		if ok = err == nil; db.IsNoRows(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("hand job back: %w", err)
		}
		if err := t.Set(ctx, tx, c.ID, r.Set, r.Args...); err != nil {
			return err
		}
		if err := Announce(ctx, tx, c.ID, append(r.Topics, WorkTopic(t.Kind))...); err != nil {
			return err
		}
		return t.account(ctx, tx, r.From, r.To, m)
	})
	return ok && err == nil, err
}

// Completion is how a job succeeded.
type Completion struct {
	State       string
	StoredBytes int64 // of its results
	// Set is assignments of details; parameters begin with $2.
	Set  string
	Args []any
}

// Complete ends a claimed job that succeeded.
func (t Table) Complete(ctx context.Context, tx *db.Tx, c Claim, done Completion) error {
	var m moved
	err := tx.QueryRow(ctx, `UPDATE jobs SET state = $3, stored_bytes = $4, progress = 100, finished_at = now_ms(),
			replica = lease_owner, lease_owner = NULL, lease_until = NULL
		WHERE id = $1 AND fence = $2 AND state = 'PROCESSING' RETURNING `+movedColumns, c.ID, c.Fence, done.State, done.StoredBytes).
		Scan(m.columns()...)
	if db.IsNoRows(err) {
		return ErrMoved
	}
	if err != nil {
		return fmt.Errorf("complete job: %w", err)
	}
	if err := t.Set(ctx, tx, c.ID, done.Set, done.Args...); err != nil {
		return err
	}
	if err := t.end(ctx, tx, m.end(done.State, "")); err != nil {
		return err
	}
	return t.account(ctx, tx, "PROCESSING", done.State, m)
}

// Fail moves the jobs of a condition to FAILED and takes them from their workers. Its
// parameters begin with $5. The owner reads the sentence and the reason of failure; support
// reads cause, or without one the workers that were lost.
func (t Table) Fail(ctx context.Context, tx *db.Tx, failure *fault.Error, cause error, where string, args ...any) ([]End, error) {
	reason := cmp.Or(failure.Reason, fault.Unexplained)
	rows, err := db.All(ctx, tx, scanMoved, `UPDATE jobs SET state = 'FAILED', stored_bytes = 0, error = $2, error_code = $3, finished_at = now_ms(),
			failure_cause = COALESCE(NULLIF($4, ''), failure_cause || COALESCE(', ' || lease_owner, '')),
			replica = COALESCE(lease_owner, replica), lease_owner = NULL, lease_until = NULL, fence = fence + 1
		WHERE kind = $1 AND (`+where+`) RETURNING `+movedColumns,
		append([]any{t.Kind, failure.Answer(), string(reason), fault.Cause(cause)}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("fail jobs: %w", err)
	}
	var ends []End
	for _, m := range rows {
		e := m.end("FAILED", reason)
		if err := t.end(ctx, tx, e); err != nil {
			return nil, err
		}
		ends = append(ends, e)
	}
	return ends, t.account(ctx, tx, "", "FAILED", rows...)
}

// end runs for every job that ends.
func (t Table) end(ctx context.Context, tx *db.Tx, e End) error {
	if err := t.Ended(ctx, tx, e); err != nil {
		return err
	}
	if t.Observer != nil && !e.Deleted {
		t.Observer.Ended(e.State)
	}
	return Announce(ctx, tx, e.ID)
}

// Move changes the state of an ended job if it meets a condition, and says whether it did. Set is assignments, each
// after a comma; its parameters and those of the condition begin with $4.
func (t Table) Move(ctx context.Context, tx *db.Tx, id, from, to, set, and string, args ...any) (bool, error) {
	var m moved
	err := tx.QueryRow(ctx, `UPDATE jobs SET state = $3`+set+` WHERE id = $1 AND state = $2`+and+` RETURNING `+movedColumns,
		append([]any{id, from, to}, args...)...).Scan(m.columns()...)
	if db.IsNoRows(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("move job: %w", err)
	}
	return true, t.account(ctx, tx, from, to, m)
}

// Announce notifies the clients that wait for a change of a job, and the listeners of the
// topics.
func Announce(ctx context.Context, tx *db.Tx, id string, topics ...string) error {
	return tx.Notify(ctx, append(topics, Topic(id))...)
}

// Topic announces every change of a job that its owner can see.
func Topic(id string) string { return "job/" + id }

// WorkTopic wakes the workers of every replica, because a job of a kind may be claimed.
func WorkTopic(kind string) string { return db.ForWorkers + kind }

// revoked announces to the worker of a job, on any replica, that the job was taken away for good.
func revoked(id string) string { return db.ForWorkers + "revoked/" + id }

// Known is the condition that the user $1 owns job j and has not deleted it.
var Known = `j.user_id = $1 AND j.deleted_at IS NULL AND ` + user.Exists("j.user_id")

// Delete makes a job unknown to its owner and stops its worker. end ends the job's rows
// in the same transaction. erase removes its files; if it fails, the sweeps remove them.
func (t Table) Delete(ctx context.Context, owner, id string, end func(tx *db.Tx) error, erase func(ctx context.Context) error) error {
	err := t.DB.InTx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE jobs AS j SET deleted_at = now_ms(), stored_bytes = 0 WHERE j.id = $2 AND j.kind = $3 AND `+Known, owner, id, t.Kind)
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

// Erase takes a user's unfinished jobs away from their workers for good, and removes the files of all the user's jobs,
// also from the work folders on this disk. Deleting the user deletes the rows.
func (t Table) Erase(ctx context.Context, userID string) error {
	err := t.DB.InTx(ctx, func(tx *db.Tx) error {
		open, err := db.Texts(tx.Query(ctx, `UPDATE jobs SET fence = fence + 1, lease_owner = NULL, lease_until = NULL
			WHERE user_id = $1 AND kind = $2 AND `+Unfinished+` RETURNING id`, userID, t.Kind))
		if err != nil {
			return fmt.Errorf("stop jobs: %w", err)
		}
		for i, id := range open {
			open[i] = revoked(id)
		}
		return tx.Notify(ctx, open...)
	})
	if err != nil {
		return err
	}
	ids, err := db.Texts(t.DB.Query(ctx, `SELECT id FROM jobs WHERE user_id = $1 AND kind = $2`, userID, t.Kind))
	if err != nil {
		return fmt.Errorf("list jobs: %w", err)
	}
	if err := t.clearFolders(ids...); err != nil {
		return err
	}
	return t.EraseFiles(ctx, ids...)
}

// EraseFiles removes the uploads and the results of jobs.
func (t Table) EraseFiles(ctx context.Context, ids ...string) error {
	var prefixes []string
	for _, id := range ids {
		prefixes = append(prefixes, t.Kind+"/"+id+"/", "uploads/"+id+"/")
	}
	if err := objectstore.DeletePrefix(ctx, t.Store, prefixes...); err != nil {
		return fmt.Errorf("erase files of jobs: %w", err)
	}
	return nil
}

// expireBatch bounds the jobs that one transaction deletes.
const expireBatch = 1000

// Expire deletes the jobs of a condition that ended in a state longer ago than a lifetime. The totals keep counting them.
func (t Table) Expire(ctx context.Context, lifetime time.Duration, state, condition string) error {
	for {
		n, err := t.DB.Exec(ctx, `DELETE FROM jobs WHERE state = $2 AND id IN (SELECT id FROM jobs WHERE kind = $1 AND state = $2
			AND created_at < now_ms() - $3 AND finished_at < now_ms() - $3`+condition+` LIMIT $4)`,
			t.Kind, state, lifetime.Milliseconds(), expireBatch)
		if err != nil {
			return fmt.Errorf("expire jobs: %w", err)
		}
		if n < expireBatch {
			return nil
		}
	}
}

// Page returns a page of the owner's jobs, newest first, and the cursor of the next
// one, "" at the end. The columns are of job j and its details d.
func Page[T any](ctx context.Context, t Table, columns, owner string, p cursor.Page,
	scan func(db.Scanner) (T, error), of func(T) cursor.Cursor) (page []T, next string, err error) {
	page, next, err = cursor.List(ctx, t.DB, `SELECT `+columns+` FROM `+t.rows()+` WHERE `+Known+cursor.Newest("j.created_at", "j.id"),
		owner, p, scan, of, t.Prefix)
	if err != nil {
		err = fmt.Errorf("list jobs: %w", err)
	}
	return page, next, err
}
