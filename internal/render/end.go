package render

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"time"

	"cutroom/internal/db"
	"cutroom/internal/disk"
	"cutroom/internal/engine"
	"cutroom/internal/fault"
	"cutroom/internal/job"
	"cutroom/internal/media"
	"cutroom/internal/objectstore"
)

// circumstances are those in which an attempt failed.
type circumstances struct {
	taken   bool         // another worker has the job
	stopped bool         // the service stops
	overdue *fault.Error // unless nil, the job took too long
	unable  error        // why this replica cannot work now
	free    int64        // bytes that jobs here may still write
}

// outcome is the decision about a job whose attempt failed: it goes back to the queue, fails, or, if both are nil, is
// another worker's.
type outcome struct {
	again   *retry
	failure *fault.Error
	level   slog.Level // an error if the service is to blame
}

// retry describes the next attempt at a job that is handed back.
type retry struct {
	forgive    bool          // the attempt does not count: the job is not to blame
	pause      time.Duration // before the next attempt
	needsBytes int64         // disk space that the next replica must have
}

// decide says what becomes of a job whose attempt failed with err. A replica that cannot work may have caused the
// failure, so another replica tries the job.
func decide(attempts int, c circumstances, err error) outcome {
	again := func(r retry) outcome { return outcome{again: &r} }
	seen := fault.As(err)
	switch {
	case c.taken:
		return outcome{}
	case c.stopped:
		return again(retry{forgive: true})
	case c.overdue != nil:
		return outcome{failure: c.overdue}
	case errors.Is(err, engine.ErrNoSpace), disk.IsFull(err):
		// The bytes that are free here now were not enough.
		return again(retry{forgive: true, needsBytes: c.free + max(c.free/10, 64<<20)})
	case c.unable != nil:
		return again(retry{forgive: true})
	case errors.Is(err, objectstore.ErrUnavailable):
		return again(retry{forgive: true, pause: 10 * time.Second})
	case errors.Is(err, db.ErrUnavailable):
		return again(retry{forgive: true, pause: time.Second})
	case seen != nil && seen.Kind != fault.Internal && seen.Kind != fault.Unavailable:
		return outcome{failure: seen}
	case attempts < job.MaxAttempts:
		return again(retry{pause: time.Second})
	case errors.Is(err, media.ErrTimeout):
		return outcome{failure: errSlow, level: slog.LevelError}
	}
	return outcome{failure: errInternal, level: slog.LevelError}
}

// apply does what was decided, and logs it. It reports whether the job's uploads are no longer needed. If the outcome
// cannot be written, the lease runs out and another worker claims the job.
func (s *Service) apply(ctx context.Context, j claimedJob, o outcome, cause error) (over bool) {
	log, moved := s.jobs.AttemptLog(j.Claim), false
	var err error
	switch {
	case o.again != nil:
		err = job.Retry(ctx, func() (err error) {
			moved, err = s.jobs.HandBack(ctx, j.Claim, job.Return{From: StateProcessing, To: StatePending, Forgive: o.again.forgive, Pause: o.again.pause,
				Set:  `needs_bytes = $2, short_since = NULL`,
				Args: []any{sql.NullInt64{Int64: o.again.needsBytes, Valid: o.again.needsBytes > 0}}})
			return err
		})
		if moved && err == nil {
			log.Info("render handed back", "attemptLost", !o.again.forgive, "needsBytes", o.again.needsBytes, "why", cause)
		}
	case o.failure != nil:
		moved, err = s.fail(ctx, j, o.failure, cause)
		if moved && err == nil {
			over = !keepsUploads(o.failure)
			log.Log(ctx, o.level, "render ended", "state", StateFailed, "why", o.failure.Answer(), "err", cause)
		}
	default:
		log.Info("render taken away", "err", cause)
	}
	if err != nil {
		log.Warn("end of attempt not written; the render will be claimed again", "err", err)
	}
	return over
}
