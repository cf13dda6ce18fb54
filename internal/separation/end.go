package separation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"cutroom/internal/asset"
	"cutroom/internal/db"
	"cutroom/internal/disk"
	"cutroom/internal/events"
	"cutroom/internal/fault"
	"cutroom/internal/job"
	"cutroom/internal/media"
	"cutroom/internal/objectstore"
	"cutroom/internal/upstream/separator"
	"cutroom/internal/user"
)

// next is what becomes of a job whose attempt ended before its stems were stored.
type next int

const (
	leave    next = iota // another worker has it, or its owner's account is deleted
	handBack             // another replica continues it, at no cost of an attempt
	again                // another attempt continues it after a pause
	wait                 // it is queued again, because the provider is busy
	fail                 // it is FAILED and refunded
)

// circumstances are what decides, beside the error, what becomes of a job.
type circumstances struct {
	taken    bool // another worker holds the job, or its row is deleted
	stopped  bool // the service stops
	unable   bool // this replica cannot work
	busyWait time.Duration
}

// decide says what becomes of a job whose attempt ended with err. A job that the provider may be starting ends here,
// unless the provider refused it for being busy: nobody may ask the provider again.
func decide(j claimedJob, err error, c circumstances) next {
	refused, _ := errors.AsType[*separator.Error](err)
	maybeStarted := j.State == StateSubmitting && j.AskedAt.Valid && !j.ProjectID.Valid
	paid := j.State == StateProcessing
	_, level := judge(err)
	switch {
	case c.taken:
		return leave
	case errors.Is(err, errPaused):
		return handBack
	case refused != nil && refused.Busy && j.State == StateSubmitting && j.busyFor < c.busyWait:
		return wait
	case maybeStarted:
		return fail
	case c.stopped, errors.Is(err, db.ErrUnavailable), paid && (errors.Is(err, objectstore.ErrUnavailable) || disk.IsFull(err)),
		c.unable && level == slog.LevelError:
		return handBack
	case paid && level == slog.LevelError && j.Attempts < job.MaxAttempts: // it may be a blip, and the stems are paid for
		return again
	}
	return fail
}

// judge says why a job fails, for the client, and how loud that is logged: as an error if the service is to blame.
func judge(err error) (*fault.Error, slog.Level) {
	refused, ok := errors.AsType[*separator.Error](err)
	switch {
	case ok:
		return refused.Public(), slog.LevelWarn
	case errors.Is(err, errProviderFailed):
		return errProviderFailed, slog.LevelWarn
	case errors.Is(err, errPriceMismatch):
		return errPriceMismatch, slog.LevelWarn
	case errors.Is(err, objectstore.ErrNotFound), errors.Is(err, asset.ErrCorrupt): // nothing else is fetched
		return errNoSource, slog.LevelError
	case errors.Is(err, errCut) && media.BlameFor(err) == media.BlameFile:
		return errUnreadable, slog.LevelWarn
	case errors.Is(err, errCut) && media.BlameFor(err) == media.BlameCost:
		return errTooLarge, slog.LevelWarn
	case errors.Is(err, media.ErrTimeout):
		return errSlow, slog.LevelError
	case errors.Is(err, job.ErrDeleted):
		return job.ErrDeleted, slog.LevelInfo
	}
	return errInternal, slog.LevelError
}

// apply does what was decided, and logs it. If that cannot be written, the lease runs out and another worker recovers
// the job from its row.
func (s *Service) apply(ctx context.Context, j claimedJob, decision next, cause error) {
	log := s.jobs.AttemptLog(j.Claim)
	var moved bool
	var err error
	switch decision {
	case leave:
		log.Info("separation taken away", "err", cause)
		// This worker may have stored stems after an account deletion looked for them.
		s.removeOrphanStems(ctx, j)
	case handBack:
		if err = job.Retry(ctx, func() (err error) { moved, err = s.handBack(ctx, j); return err }); moved {
			log.Info("separation handed back", "state", j.State, "why", cause)
		}
	case again:
		pause := time.Duration(j.Attempts) * againAfter
		err = job.Retry(ctx, func() (err error) {
			moved, err = s.jobs.HandBack(ctx, j.Claim, job.Return{From: j.State, To: j.State, Spend: true, Pause: pause})
			return err
		})
		if moved {
			log.Error("separation failed here; another attempt continues it", "pauseMs", pause.Milliseconds(), "err", cause)
		}
	case wait:
		busy, _ := errors.AsType[*separator.Error](cause)
		r := undo(` AND deleted_at IS NULL`)
		r.Set += `, busy_since = COALESCE(busy_since, now_ms()), busy_status = $2`
		r.Args = []any{busy.Status}
		var pause time.Duration
		err = job.Retry(ctx, func() (err error) {
			if pause, err = s.pauseSubmissions(ctx, busy.RetryAfter); err == nil {
				moved, err = s.jobs.HandBack(ctx, j.Claim, r)
			}
			return err
		})
		if moved {
			log.Info("separation waits for the busy provider", "status", busy.Status, "pauseMs", pause.Milliseconds(), "err", cause)
		}
	case fail:
		failure, level := judge(cause)
		if moved, err = s.fail(ctx, j, ending{failure: failure, cause: cause, withdraw: unasked(j, cause)}); moved {
			log.Log(ctx, level, "separation ended", "state", StateFailed, "why", failure.Answer(), "err", cause)
		}
	}
	if decision != leave && decision != fail && !moved && err == nil {
		// Its owner deleted it, and the provider does not have it; or it is no longer this worker's.
		_, err = s.fail(ctx, j, ending{failure: job.ErrDeleted, cause: cause, withdraw: unasked(j, cause)})
	}
	if err != nil {
		log.Warn("end of attempt not written; the job will be recovered", "err", err)
	}
}

// againAfter is the pause before another attempt at paid stems; each next one is longer.
const againAfter = 30 * time.Second

// unasked reports whether the provider has certainly not started a job whose attempt ended with an error: its worker
// did not ask, or the provider refused.
func unasked(j claimedJob, err error) bool {
	e, ok := errors.AsType[*separator.Error](err)
	return j.State == StateSubmitting && !j.ProjectID.Valid && (!j.AskedAt.Valid || ok && e.NotReceived())
}

// toQueue returns a job to its place in the queue. submitting_at becomes the time of the move, so that the sweep
// for stale jobs does not count the time before it.
func toQueue() job.Return {
	return job.Return{From: StateSubmitting, To: StateQueued, Set: `submitting_at = now_ms()`, Topics: []string{TopicQueue}}
}

// undo is toQueue without a lost attempt. The intent is void, because the provider was not asked or refused.
func undo(and string) job.Return {
	r := toQueue()
	r.Forgive, r.Withdraw, r.And = true, true, and
	return r
}

// handBack gives up a job that another replica continues. Its place in the queue, its attempts and its project stay
// as they were. A deleted job is not queued again.
func (s *Service) handBack(ctx context.Context, j claimedJob) (moved bool, err error) {
	if j.State == StateSubmitting && j.ProjectID.Valid { // the project is not stored yet
		if err := s.started(ctx, &j, j.ProjectID.Int64); err != nil {
			return false, err
		}
	}
	r := job.Return{From: StateProcessing, To: StateProcessing}
	if j.State == StateSubmitting {
		r = undo(` AND deleted_at IS NULL`)
	}
	return s.jobs.HandBack(ctx, j.Claim, r)
}

// removeOrphanStems removes stored stems of a job that will not be READY. The sweep of orphans
// removes what it could not.
func (s *Service) removeOrphanStems(ctx context.Context, j claimedJob) {
	if j.State != StateProcessing {
		return // nothing can have been stored yet
	}
	err := user.Check(ctx, s.DB, j.UserID)
	if errors.Is(err, user.ErrDeleted) { // whatever its row says while there is one
		err = objectstore.DeletePrefix(ctx, s.Store, folder(j.ID))
	} else if err == nil {
		err = s.Sweeper.Clean(ctx, kindStems, folder(j.ID))
	}
	if err != nil {
		s.jobs.AttemptLog(j.Claim).Warn("orphaned stems not deleted; the sweep of orphans will", "err", err)
	}
}

// Delete makes a job unknown to its owner and erases its files. If the provider has not been asked, the job ends and
// is refunded. Otherwise it counts as in flight until the provider is done, and its stems are not fetched.
func (s *Service) Delete(ctx context.Context, owner, jobID string) error {
	return s.jobs.Delete(ctx, owner, jobID, func(tx *db.Tx) error {
		if err := s.jobs.Set(ctx, tx, jobID, `file_name = NULL, reference = NULL`); err != nil {
			return err
		}
		j, err := scanJob(tx.QueryRow(ctx, selectJob+`j.id = $1`, jobID))
		if err != nil {
			return fmt.Errorf("read deleted separation: %w", err)
		}
		if err := events.Drop(ctx, tx, jobID); err != nil {
			return err
		}
		return s.end(ctx, tx, j)
	}, func(ctx context.Context) error {
		return errors.Join(objectstore.DeletePrefix(ctx, s.Store, "uploads/"+jobID+"/"), s.Sweeper.Clean(ctx, kindStems, folder(jobID)))
	})
}

// end ends a deleted job, unless the provider is working on it.
func (s *Service) end(ctx context.Context, tx *db.Tx, j claimedJob) error {
	switch {
	case j.State == StateReady:
		return s.forgetStems(ctx, tx, j.ID)
	case j.State == StateFailed, j.State == StateDisposed, j.AskedAt.Valid && !j.DoneAt.Valid:
		return nil
	}
	_, err := s.failIn(ctx, tx, j, ending{failure: job.ErrDeleted, cause: job.ErrDeleted})
	return err
}

// forgetStems moves READY to DISPOSED and removes the rows of the stems. The transaction has locked
// the job's row. Objects that a render holds stay until that render has ended.
func (s *Service) forgetStems(ctx context.Context, tx *db.Tx, jobID string) error {
	if _, err := tx.Exec(ctx, `DELETE FROM separation_stems WHERE job_id = $1`, jobID); err != nil {
		return fmt.Errorf("forget stems: %w", err)
	}
	_, err := s.jobs.Move(ctx, tx, jobID, StateReady, StateDisposed, `, stored_bytes = 0`, "")
	return err
}

// keepStems locks the row of a separation if its stems may be read. No stem of it is removed before the
// transaction ends. Whoever removes stems later locks the same row first and then looks with a new statement,
// which sees what this transaction wrote.
func keepStems(ctx context.Context, tx *db.Tx, jobID string) (ok bool, err error) {
	ok, err = db.HasRow(ctx, tx, `SELECT 1 FROM jobs j WHERE j.id = $1 AND `+readable+tx.ForUpdate(), jobID)
	if err != nil {
		err = fmt.Errorf("keep stems: %w", err)
	}
	return ok, err
}
