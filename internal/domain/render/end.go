package render

import (
	"database/sql"
	"errors"
	"log/slog"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/film/engine"
	"cutroom/internal/film/media"
	"cutroom/internal/storage/disk"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/work/job"
)

// circumstances describes the situation in which an attempt failed.
type circumstances struct {
	taken   bool         // another worker has the job
	stopped bool         // the service is stopping
	overdue *fault.Error // unless nil, the job took too long
	unable  error        // why this replica cannot work now
	free    int64        // bytes that jobs here may still write
}

// retry describes the next attempt at a job that is handed back.
type retry struct {
	forgive    bool          // the attempt does not count: the job is not to blame
	pause      time.Duration // before the next attempt
	needsBytes int64         // disk space that the next replica must have
}

func again(r retry) job.Outcome {
	return job.Outcome{Return: &job.Return{To: StatePending, Forgive: r.forgive, Pause: r.pause,
		Set:   job.SQL(`needs_bytes = $1, short_since = NULL`, sql.NullInt64{Int64: r.needsBytes, Valid: r.needsBytes > 0}),
		Attrs: []any{"attemptLost", !r.forgive, "needsBytes", r.needsBytes}}}
}

func failed(failure *fault.Error, level slog.Level) job.Outcome {
	return job.Outcome{Fail: &job.Ending{Failure: failure, Level: level}}
}

// decide says what becomes of a job whose attempt failed with err. A replica that cannot work may have caused the
// failure, so another replica tries the job.
func decide(attempts int, c circumstances, err error) job.Outcome {
	seen := fault.As(err)
	switch {
	case c.taken:
		return job.Outcome{}
	case c.stopped:
		return again(retry{forgive: true})
	case c.overdue != nil:
		return failed(c.overdue, slog.LevelInfo)
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
		return failed(seen, slog.LevelInfo)
	case attempts < job.MaxAttempts:
		return again(retry{pause: time.Second})
	case errors.Is(err, media.ErrTimeout):
		return failed(errSlow, slog.LevelError)
	}
	return failed(errInternal, slog.LevelError)
}
