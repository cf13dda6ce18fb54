package separation

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"cutroom/internal/asset"
	"cutroom/internal/db"
	"cutroom/internal/disk"
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
		c.unable && judge(err).level == slog.LevelError:
		return handBack
	}
	return fail
}

// verdict is why a job fails.
type verdict struct {
	failure *fault.Error // for the client
	message string       // for the log
	level   slog.Level   // an error if the service is to blame
}

func judge(err error) verdict {
	const ours = "separation failed"
	var refused *separator.Error
	switch {
	case errors.As(err, &refused):
		return verdict{refused.Public(), "separation refused by the provider", slog.LevelWarn}
	case errors.Is(err, errProviderFailed):
		return verdict{errProviderFailed, "separation failed at the provider", slog.LevelWarn}
	case errors.Is(err, errPriceMismatch):
		return verdict{errPriceMismatch, "separation costs more than was paid", slog.LevelWarn}
	case errors.Is(err, objectstore.ErrNotFound), errors.Is(err, asset.ErrCorrupt): // nothing else is fetched
		return verdict{errNoSource, ours, slog.LevelError}
	case errors.Is(err, errCut) && media.BlameFor(err) == media.BlameFile:
		return verdict{errUnreadable, "the sound of an asset cannot be decoded", slog.LevelWarn}
	case errors.Is(err, errCut) && media.BlameFor(err) == media.BlameCost:
		return verdict{errTooLarge, "an asset takes too much to cut", slog.LevelWarn}
	case errors.Is(err, media.ErrTimeout):
		return verdict{errSlow, ours, slog.LevelError}
	case errors.Is(err, job.ErrDeleted):
		return verdict{job.ErrDeleted, "the provider is done with a deleted separation", slog.LevelInfo}
	}
	return verdict{errInternal, ours, slog.LevelError}
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
		if err = job.Retry(ctx, func() error { return s.handBack(ctx, j) }); err == nil {
			log.Info("separation handed back", "state", j.State, "why", cause)
		}
	case wait:
		busy, _ := errors.AsType[*separator.Error](cause)
		var pause time.Duration
		err = job.Retry(ctx, func() (err error) {
			if pause, err = s.pauseSubmissions(ctx, busy.RetryAfter); err == nil {
				moved, err = s.waitForProvider(ctx, j, busy.Status)
			}
			return err
		})
		if moved {
			log.Info("separation waits for the busy provider", "status", busy.Status, "pauseMs", pause.Milliseconds(), "err", cause)
		} else if err == nil { // its owner deleted it
			s.apply(ctx, j, fail, cause)
		}
	case fail:
		v := judge(cause)
		if moved, err = s.fail(ctx, j, v.failure, cause); moved {
			log.Log(ctx, v.level, v.message, "err", cause)
			log.Info("separation ended", "state", StateFailed, "why", v.failure.Answer())
		}
	}
	if err != nil {
		log.Warn("end of attempt not written; the job will be recovered", "err", err)
	}
}

// toQueue returns a job to its place in the queue. submitting_at becomes the time of the move, so that the sweep
// for stale jobs does not count the time before it.
func toQueue() job.Return {
	return job.Return{From: StateSubmitting, To: StateQueued, Set: `submitting_at = now_ms()`, Topics: []string{TopicQueue}}
}

// handBack gives up a job that another replica continues. Its place in the queue, its attempts and its project stay
// as they were. An intent whose write got no answer is void, because the provider was not asked; but a deleted job with
// an intent was not refunded and must not be queued again.
func (s *Service) handBack(ctx context.Context, j claimedJob) error {
	if j.State == StateSubmitting && j.ProjectID.Valid { // the project is not stored yet
		if err := s.started(ctx, &j, j.ProjectID.Int64); err != nil {
			return err
		}
	}
	r := job.Return{From: StateProcessing, To: StateProcessing}
	if j.State == StateSubmitting {
		r = toQueue()
		r.Forgive, r.Withdraw, r.And = true, true, ` AND (asked_at IS NULL OR deleted_at IS NULL)`
	}
	_, err := s.jobs.HandBack(ctx, j.Claim, r)
	return err
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
