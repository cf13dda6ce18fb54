// Decides what a failed attempt means for its job: decide chooses, outcome says which columns change, and package job
// writes them.

package separation

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/domain/asset"
	"cutroom/internal/domain/credit"
	"cutroom/internal/film/media"
	"cutroom/internal/storage/disk"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/upstream/separator"
	"cutroom/internal/work/events"
	"cutroom/internal/work/job"
)

// verdict is what becomes of a job whose attempt ended before its stems were stored.
type verdict int

const (
	leave    verdict = iota // another worker has it, or its owner's account is deleted
	handBack                // another replica continues it, at no cost of an attempt
	again                   // another attempt continues it after a pause
	wait                    // it is queued again, because the provider is busy
	fail                    // it is FAILED and refunded
)

// circumstances decide, together with the error, what becomes of a job.
type circumstances struct {
	taken    bool // another worker holds the job, or its row is deleted
	stopped  bool // the service is stopping
	unable   bool // this replica cannot work
	busyWait time.Duration
}

// decide says what becomes of a job whose attempt ended with err. A job that the provider may be starting ends here,
// because nobody may ask the provider again. The exception is a job that the provider refused because it was busy.
func decide(j claimedJob, err error, c circumstances) verdict {
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

// judge returns why a job fails, for the client, and the level at which to log it: error if the service is to blame.
func judge(err error) (*fault.Error, slog.Level) {
	refused, ok := errors.AsType[*separator.Error](err)
	switch {
	case ok:
		return refused.Public(), slog.LevelWarn
	case errors.Is(err, errProviderFailed):
		return errProviderFailed, slog.LevelWarn
	case errors.Is(err, errPriceMismatch):
		return errPriceMismatch, slog.LevelWarn
	case errors.Is(err, objectstore.ErrNotFound), errors.Is(err, asset.ErrCorrupt): // only the source is fetched
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

// againAfter is the pause before another attempt at paid stems; each further pause is longer.
const againAfter = 30 * time.Second

// outcome returns how to write a verdict. A job whose owner deleted it does not go back to the queue: it fails, because
// the provider does not have it.
func outcome(j claimedJob, v verdict, cause error) job.Outcome {
	deleted := &job.Ending{Failure: job.ErrDeleted, Withdraw: unasked(j, cause)}
	switch v {
	case leave:
		return job.Outcome{}
	case handBack:
		if j.State == StateProcessing {
			return job.Outcome{Return: &job.Return{To: StateProcessing}}
		}
		return job.Outcome{Return: unsubmitted(), Fail: deleted}
	case again:
		return job.Outcome{Return: &job.Return{To: j.State, Spend: true, Pause: time.Duration(j.Attempts) * againAfter,
			Says: "failed here; another attempt continues it", Level: slog.LevelError}}
	case wait:
		busy, _ := errors.AsType[*separator.Error](cause)
		r := unsubmitted()
		r.Set = job.SQL(`submitting_at = now_ms(), busy_since = COALESCE(busy_since, now_ms()), busy_status = $1`, busy.Status)
		r.Says, r.Attrs = "waits for the busy provider", []any{"status", busy.Status}
		return job.Outcome{Return: r, Fail: deleted}
	}
	failure, level := judge(cause)
	return job.Outcome{Fail: &job.Ending{Failure: failure, Withdraw: unasked(j, cause), Level: level}}
}

// unasked reports whether the provider has certainly not started a job whose attempt ended with an error: its worker
// did not ask, or the provider refused.
func unasked(j claimedJob, err error) bool {
	e, ok := errors.AsType[*separator.Error](err)
	return j.State == StateSubmitting && !j.ProjectID.Valid && (!j.AskedAt.Valid || ok && e.NotReceived())
}

// toQueue returns a job to its place in the queue. submitting_at becomes the time of the move, so that the sweep
// for stale jobs does not count the time before it.
func toQueue() *job.Return {
	return &job.Return{To: StateQueued, Set: job.SQL(`submitting_at = now_ms()`), Topics: []string{TopicQueue}}
}

// unsubmitted is toQueue for an attempt that does not count. It withdraws the intent, because the provider was not
// asked, or refused. A deleted job is not queued again.
func unsubmitted() *job.Return {
	r := toQueue()
	r.Forgive, r.Withdraw, r.Still = true, true, job.SQL(`j.deleted_at IS NULL`)
	return r
}

// apply writes a verdict, and removes the files that the job no longer needs. If the verdict cannot be written, the
// lease runs out and another worker recovers the job from its row.
func (s *Service) apply(ctx context.Context, j claimedJob, v verdict, cause error) {
	if v == handBack && j.State == StateSubmitting && j.ProjectID.Valid { // the row does not have the project id yet
		if err := job.Retry(ctx, func() error { return s.started(ctx, &j, j.ProjectID.Int64) }); err != nil {
			s.jobs.AttemptLog(j.Claim).Warn("project of the provider not written; the job will be recovered", "err", err)
			return
		}
	}
	if busy, ok := errors.AsType[*separator.Error](cause); ok && v == wait {
		var pause time.Duration
		err := job.Retry(ctx, func() (err error) { pause, err = s.pauseSubmissions(ctx, busy.RetryAfter); return err })
		log := s.jobs.AttemptLog(j.Claim)
		if err != nil {
			log.Warn("submissions not paused, although the provider is busy", "err", err)
		} else {
			log.Info("submissions pause, because the provider is busy", "pauseMs", pause.Milliseconds())
		}
	}
	s.cleanUp(ctx, j.Claim, s.jobs.Apply(ctx, j.Claim, outcome(j, v, cause), cause))
}

// ended runs in the transaction that makes a separation READY or FAILED. A failed job is refunded, unless its owner
// deleted it after the provider was asked.
func ended(ctx context.Context, tx *db.Tx, e job.End) error {
	if err := job.Release(ctx, tx, e.ID); err != nil {
		return err
	}
	what := events.SeparationReady
	if e.State == StateFailed {
		what = events.SeparationFailed
		if !e.Deleted || !e.Asked {
			if _, err := credit.Refund(ctx, tx, e.UserID, e.ID); err != nil {
				return err
			}
		}
	}
	if !e.Deleted {
		if err := events.Record(ctx, tx, events.Event{Type: what, JobID: e.ID, UserID: e.UserID, ErrorCode: string(e.Reason)}); err != nil {
			return err
		}
	}
	// Room at the provider and places in the queue have changed.
	return tx.Notify(ctx, job.WorkTopic(job.Separation), TopicQueue)
}
