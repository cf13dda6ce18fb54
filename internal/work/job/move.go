// The moves of jobs: each is one transaction, in which one guarded UPDATE decides. A move by a worker names the fence
// of its claim, so that a worker which lost its lease moves nothing. outcome.go decides between moves when an attempt
// ends, and queue.go claims.

package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/work/user"
)

// moved holds the columns that moves need from a row that they have just changed or deleted.
type moved struct {
	ID, UserID          string
	createdAt, sourceMs int64
	deleted, asked      bool
}

const movedColumns = `id, user_id, created_at, source_duration_ms, deleted_at IS NOT NULL, asked_at IS NOT NULL`

// fields are the fields into which movedColumns are scanned.
func (m *moved) fields() []any {
	return []any{&m.ID, &m.UserID, &m.createdAt, &m.sourceMs, &m.deleted, &m.asked}
}

func scanMoved(row db.Scanner) (m moved, err error) {
	err = row.Scan(m.fields()...)
	return m, err
}

func (m moved) end(state string, reason fault.Reason) End {
	return End{ID: m.ID, UserID: m.UserID, State: state, Reason: reason, Deleted: m.deleted, Asked: m.asked}
}

// Guard locks a claimed job's row until the transaction ends. It returns [ErrMoved] if the job has another holder or
// another state.
func (t Table) Guard(ctx context.Context, tx *db.Tx, c Claim) error {
	held, err := db.HasRow(ctx, tx, `SELECT 1 FROM jobs WHERE id = $1 AND fence = $2 AND state = $3`+tx.ForUpdate(),
		c.ID, c.Fence, c.State)
	if err != nil {
		return fmt.Errorf("lock job: %w", err)
	}
	if !held {
		return ErrMoved
	}
	return nil
}

// still locks a claimed job's row, and reports whether the claim holds and the job j with its details d meets a
// condition. The statement that checks the condition begins with the lock held, so it sees what others wrote before.
func (t Table) still(ctx context.Context, tx *db.Tx, c Claim, condition Fragment) (bool, error) {
	if err := t.Guard(ctx, tx, c); errors.Is(err, ErrMoved) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	if condition.text == "" {
		return true, nil
	}
	query, args := statement([]any{c.ID}, `SELECT 1 FROM `+t.rows()+` WHERE j.id = $1 AND (`, condition, `)`)
	return db.HasRow(ctx, tx, query, args...)
}

// did reports whether a job is in the given state and its fence has been raised by the given number since the claim.
// Then an earlier attempt to move it succeeded although its answer was lost, and that is why a repeated move finds that
// the claim no longer holds.
func (t Table) did(ctx context.Context, q db.Querier, c Claim, raised int64, state string) (bool, error) {
	did, err := db.HasRow(ctx, q, `SELECT 1 FROM jobs WHERE id = $1 AND fence = $2 AND state = $3`, c.ID, c.Fence+raised, state)
	if err != nil {
		return false, fmt.Errorf("look up job: %w", err)
	}
	return did, nil
}

// Progress writes the percentage of a claimed job that is done, never a lower one than before, and assignments of
// details.
func (t Table) Progress(ctx context.Context, c Claim, percent int, set Fragment) error {
	return t.DB.InTx(ctx, func(tx *db.Tx) error {
		if err := Guarded(tx.Exec(ctx, `UPDATE jobs SET progress = CASE WHEN progress < $3 THEN $3 ELSE progress END
			WHERE id = $1 AND fence = $2 AND state = 'PROCESSING'`, c.ID, c.Fence, percent)); err != nil {
			return err
		}
		if err := t.Set(ctx, tx, c.ID, set); err != nil {
			return err
		}
		return Announce(ctx, tx, c.ID)
	})
}

// Ask records that the provider is about to be asked for a claimed job, in one guarded update. It also returns
// [ErrMoved] if the owner's account is being deleted.
func (t Table) Ask(ctx context.Context, c Claim) error {
	return Guarded(t.DB.Exec(ctx, `UPDATE jobs SET asked_at = now_ms()
		WHERE id = $1 AND fence = $2 AND state = $3 AND `+user.Exists("user_id"), c.ID, c.Fence, c.State))
}

// Advance moves a claimed job to its next working state, and writes assignments of details. The worker keeps the job.
// If the answer is lost, call Advance again.
func (t Table) Advance(ctx context.Context, c Claim, to string, set Fragment) error {
	return t.DB.InTx(ctx, func(tx *db.Tx) error {
		m, err := scanMoved(tx.QueryRow(ctx, `UPDATE jobs SET state = $4
			WHERE id = $1 AND fence = $2 AND state = $3 RETURNING `+movedColumns, c.ID, c.Fence, c.State, to))
		if db.IsNoRows(err) {
			if did, err := t.did(ctx, tx, c, 0, to); err != nil || did {
				return err
			}
			return ErrMoved
		}
		if err != nil {
			return fmt.Errorf("advance job: %w", err)
		}
		if err := t.Set(ctx, tx, c.ID, set); err != nil {
			return err
		}
		if err := Announce(ctx, tx, c.ID); err != nil {
			return err
		}
		return t.count(ctx, tx, c.State, to, m)
	})
}

// Return says how a job is handed back, so that another worker can claim it.
type Return struct {
	To       string
	Forgive  bool          // the attempt does not count
	Spend    bool          // one more attempt counts, because continuing a job does not begin a new one
	Pause    time.Duration // until the job may be claimed again
	Lost     bool          // the worker stopped renewing its lease; support reads its name if the job fails
	Withdraw bool          // the provider was not asked after all, or refused
	Still    Fragment      // a condition on the job j and its details d, checked while its row is locked
	Set      Fragment      // assignments of details
	Topics   []string      // further topics to notify

	// The message (unless "") that the attempt's log has instead of "handed back", its level and its attributes.
	Says  string
	Level slog.Level
	Attrs []any
}

// MaxAttempts bounds how many workers may begin to work on a job and fail or die.
const MaxAttempts = 3

// HandBack returns a claimed job to its place in the queue. It reports false if the claim no longer holds the job, or
// if the job does not meet the return's condition.
func (t Table) HandBack(ctx context.Context, c Claim, r Return) (ok bool, err error) {
	var attempts any // NULL keeps the stored number
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
	err = t.DB.InTx(ctx, func(tx *db.Tx) (err error) {
		if ok, err = t.still(ctx, tx, c, r.Still); err != nil || !ok {
			return err
		}
		m, err := scanMoved(tx.QueryRow(ctx, `UPDATE jobs SET state = $3, attempts = COALESCE($4, attempts), fence = fence + 1,
				replica = COALESCE(lease_owner, replica), lease_owner = NULL, lease_until = now_ms() + $5`+set+`
			WHERE id = $1 AND fence = $2 RETURNING `+movedColumns, c.ID, c.Fence, r.To, attempts, pauseMs))
		if err != nil {
			return fmt.Errorf("hand job back: %w", err)
		}
		if err := t.Set(ctx, tx, c.ID, r.Set); err != nil {
			return err
		}
		if err := Announce(ctx, tx, c.ID, append(r.Topics, WorkTopic(t.Kind))...); err != nil {
			return err
		}
		return t.count(ctx, tx, c.State, r.To, m)
	})
	return ok && err == nil, err
}

// Completion says how a job succeeded.
type Completion struct {
	State       string
	StoredBytes int64    // of its results
	Set         Fragment // assignments of details
	// Write, unless nil, writes other rows of the results. It runs when the job's row is locked.
	Write func(ctx context.Context, tx *db.Tx) error
}

// Complete ends a claimed job that succeeded, even while the service stops: the results are made, and an interrupted
// commit would leave its outcome unknown.
func (t Table) Complete(ctx context.Context, c Claim, done Completion) error {
	err := Retry(ctx, func() error {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWrite)
		defer cancel()
		return t.DB.InTx(last, func(tx *db.Tx) error { return t.complete(last, tx, c, done) })
	})
	if err == nil {
		return nil
	}
	// Maybe only the answer was lost. The lease ended with the job, so the worker's context may have ended, too.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), TTL/3)
	defer cancel()
	if did, derr := t.did(last, t.DB, c, 0, done.State); did && derr == nil {
		return nil
	}
	return err
}

func (t Table) complete(ctx context.Context, tx *db.Tx, c Claim, done Completion) error {
	m, err := scanMoved(tx.QueryRow(ctx, `UPDATE jobs SET state = $3, stored_bytes = $4, progress = 100, finished_at = now_ms(),
			replica = lease_owner, lease_owner = NULL, lease_until = NULL
		WHERE id = $1 AND fence = $2 AND state = 'PROCESSING' RETURNING `+movedColumns, c.ID, c.Fence, done.State, done.StoredBytes))
	if db.IsNoRows(err) {
		return ErrMoved
	}
	if err != nil {
		return fmt.Errorf("complete job: %w", err)
	}
	if done.Write != nil {
		if err := done.Write(ctx, tx); err != nil {
			return err
		}
	}
	if err := t.Set(ctx, tx, c.ID, done.Set); err != nil {
		return err
	}
	if err := t.end(ctx, tx, m.end(done.State, "")); err != nil {
		return err
	}
	return t.count(ctx, tx, "PROCESSING", done.State, m)
}

// Ending says how a job fails.
type Ending struct {
	Failure  *fault.Error // the owner reads its sentence and its reason
	Cause    error        // for support; if it is nil, support reads which workers were lost
	Withdraw bool         // the provider was not asked, or it refused
	Still    Fragment     // a condition on the job j and its details d, checked while its row is locked
	Level    slog.Level   // of the attempt's last line in the log: an error if the service is to blame
}

// Fail moves one job to FAILED and takes it from its worker, in the caller's transaction. It reports false if the claim
// no longer holds the job, or if the job does not meet the ending's condition.
func (t Table) Fail(ctx context.Context, tx *db.Tx, c Claim, e Ending) (ok bool, err error) {
	if ok, err = t.still(ctx, tx, c, e.Still); err != nil || !ok {
		return false, err
	}
	if e.Withdraw {
		if _, err := tx.Exec(ctx, `UPDATE jobs SET asked_at = NULL WHERE id = $1`, c.ID); err != nil {
			return false, fmt.Errorf("withdraw the intent of a job: %w", err)
		}
	}
	ends, err := t.FailAll(ctx, tx, e.Failure, e.Cause, SQL(`id = $1`, c.ID))
	return len(ends) == 1, err
}

// FailAll moves all jobs that meet a condition to FAILED and takes them from their workers.
func (t Table) FailAll(ctx context.Context, tx *db.Tx, failure *fault.Error, cause error, where Fragment) ([]End, error) {
	reason := cmp.Or(failure.Reason, fault.Unexplained)
	query, args := statement([]any{t.Kind, failure.Answer(), string(reason), fault.Cause(cause)},
		`UPDATE jobs SET state = 'FAILED', stored_bytes = 0, error = $2, error_code = $3, finished_at = now_ms(),
			failure_cause = COALESCE(NULLIF($4, ''), failure_cause || COALESCE(', ' || lease_owner, '')),
			replica = COALESCE(lease_owner, replica), lease_owner = NULL, lease_until = NULL, fence = fence + 1
		WHERE kind = $1 AND (`, where, `) RETURNING `+movedColumns)
	rows, err := db.All(ctx, tx, scanMoved, query, args...)
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
	return ends, t.count(ctx, tx, "", "FAILED", rows...)
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

// Move changes the state of an ended job that meets a condition, with further assignments to its row, and reports
// whether it did.
func (t Table) Move(ctx context.Context, tx *db.Tx, id, from, to string, set, and Fragment) (bool, error) {
	parts := []any{`UPDATE jobs SET state = $3`}
	if set.text != "" {
		parts = append(parts, `, `, set)
	}
	parts = append(parts, ` WHERE id = $1 AND state = $2`)
	if and.text != "" {
		parts = append(parts, ` AND `, and)
	}
	query, args := statement([]any{id, from, to}, append(parts, ` RETURNING `+movedColumns)...)
	m, err := scanMoved(tx.QueryRow(ctx, query, args...))
	if db.IsNoRows(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("move job: %w", err)
	}
	return true, t.count(ctx, tx, from, to, m)
}
