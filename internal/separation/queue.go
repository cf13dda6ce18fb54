package separation

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"cutroom/internal/credit"
	"cutroom/internal/db"
	"cutroom/internal/events"
	"cutroom/internal/fault"
	"cutroom/internal/job"
	"cutroom/internal/user"
)

// TopicQueue announces that places in the queue have changed. It also names the lock that orders submissions and
// claims over all replicas.
const TopicQueue = "separation-queue"

// The conditions of jobs j that wait, and of those that count against the limit. A query on one state at work
// names both, because a database uses a partial index only if the query repeats its condition.
const (
	queued   = `j.kind = 'separation' AND j.` + job.Waiting
	inFlight = `j.kind = 'separation' AND j.` + job.AtWork
)

// belowLimit is the condition that fewer jobs than a parameter says are in flight.
func belowLimit(limit string) string {
	return `(SELECT COUNT(*) FROM jobs j WHERE ` + inFlight + `) < ` + limit
}

// ownerNotErasing is the condition that the account of job j is not being deleted.
var ownerNotErasing = user.NotErasing("j.user_id")

// next claims a job for this replica: one whose worker died, or else the next one in the queue.
func (s *Service) next(ctx context.Context) (j claimedJob, ok bool, err error) {
	// A cheap query comes first, because most calls find nothing. It has the order of the
	// queue's index; without it PostgreSQL may read jobs that have ended.
	var waiting int
	// A frozen database may answer only after every lease has run out, so do not wait for it.
	err = s.DB.QueryRow(db.WithLimit(ctx, job.TTL/3), `SELECT COALESCE(
		(SELECT 1 FROM jobs j WHERE `+inFlight+` AND j.state = 'PROCESSING' AND COALESCE(j.lease_until, 0) < now_ms() LIMIT 1),
		(SELECT 1 FROM jobs j WHERE `+queued+` AND `+notPaused+`
			AND `+belowLimit(`$1`)+` ORDER BY j.created_at, j.id LIMIT 1), 0)`, s.InFlight).Scan(&waiting)
	if err != nil {
		return j, false, fmt.Errorf("look for separation jobs: %w", err)
	}
	if waiting == 0 {
		return j, false, nil
	}
	if _, unable := s.CanWork(ctx); unable != nil {
		return j, false, nil // CanWork logs the reason
	}
	if j, ok, err = s.claim(ctx); ok {
		message := "separation claimed"
		if j.State == StateProcessing {
			message = "separation taken over"
		}
		s.jobs.AttemptLog(j.Claim).Info(message)
	}
	return j, ok, err
}

// claim claims a PROCESSING job whose worker died, or else the oldest queued job, if the in-flight limit
// allows it. Counting and claiming are one step over all replicas. A PROCESSING job has the provider's project id in
// its row, so the provider is not asked again.
func (s *Service) claim(ctx context.Context) (j claimedJob, ok bool, err error) {
	// Do not cut a claim short: its outcome would be unknown. A frozen database may answer only after the lease has
	// run out.
	ctx = db.WithLimit(context.WithoutCancel(ctx), job.TTL)
	err = s.DB.InTx(ctx, func(tx *db.Tx) error {
		j, ok, err = s.take(ctx, tx, StateProcessing, StateProcessing, `SELECT j.id FROM jobs j
			WHERE `+inFlight+` AND j.state = 'PROCESSING' AND (j.lease_until IS NULL OR j.lease_until < now_ms()) AND `+
			ownerNotErasing+oldest+` LIMIT 1`+s.DB.SkipLockedOf("j"))
		if err != nil || ok {
			return err
		}
		if err := tx.Lock(ctx, TopicQueue); err != nil {
			return err
		}
		j, ok, err = s.take(ctx, tx, StateQueued, StateSubmitting, `SELECT j.id FROM jobs j
			WHERE `+queued+` AND `+notPaused+` AND `+ownerNotErasing+` AND `+belowLimit(`$6`)+oldest+` LIMIT 1`, s.InFlight)
		if err != nil || !ok {
			return err
		}
		j.Attempts++
		if err := s.jobs.Set(ctx, tx, j.ID, `submitting_at = now_ms()`); err != nil {
			return err
		}
		return job.Announce(ctx, tx, j.ID, TopicQueue)
	})
	return j, ok && err == nil, err
}

// take moves the job that pick selects and reads it.
func (s *Service) take(ctx context.Context, tx *db.Tx, from, to, pick string, args ...any) (j claimedJob, ok bool, err error) {
	c, ok, err := s.jobs.Take(ctx, tx, from, to, pick, args...)
	if err != nil || !ok {
		return j, false, err
	}
	if j, err = scanJob(tx.QueryRow(ctx, selectJob+`j.id = $1`, c.ID)); err != nil {
		return j, false, fmt.Errorf("read claimed separation: %w", err)
	}
	j.Lease = c.Lease
	return j, true, nil
}

// requeueDead requeues the jobs whose worker died while submitting, and fails those that
// the provider may have received.
func (s *Service) requeueDead(ctx context.Context) error {
	return s.recoverJobs(ctx, job.Expired, condition{where: `COALESCE(j.lease_until, 0) < now_ms()`})
}

// requeueStuck does the same for jobs that a living worker has been submitting for longer
// than the threshold.
func (s *Service) requeueStuck(ctx context.Context) error {
	return s.recoverJobs(ctx, "", condition{`COALESCE(d.submitting_at, 0) < now_ms() - $1`, []any{s.StuckAfter.Milliseconds()}})
}

// recoverJobs requeues or fails the SUBMITTING jobs that match which. It requeues a job only if it still matches and.
func (s *Service) recoverJobs(ctx context.Context, and string, which condition) error {
	which.where = inFlight + ` AND j.state = 'SUBMITTING' AND ` + which.where
	return s.each(ctx, which, oldest, func(j claimedJob) (err error) {
		var moved bool
		switch {
		case j.AskedAt.Valid:
			moved, err = s.fail(ctx, j, ending{failure: errInterrupted, still: which,
				cause: errors.New("the worker was lost while the provider may have been starting the job")})
		case j.Attempts >= job.MaxAttempts:
			moved, err = s.fail(ctx, j, ending{failure: errInterrupted, still: which})
		default:
			r := toQueue()
			r.Lost, r.And = true, ` AND asked_at IS NULL`+and
			moved, err = s.jobs.HandBack(ctx, j.Claim, r)
		}
		if moved {
			s.jobs.AttemptLog(j.Claim).Warn("recovered a job from SUBMITTING", "asked", j.AskedAt.Valid)
		}
		return err
	})
}

// condition selects jobs j with their details d. Its parameters are args.
type condition struct {
	where string
	args  []any
}

// holds reports whether a job matches. To act on the answer, lock the job's row before.
func (c condition) holds(ctx context.Context, tx *db.Tx, id string) (bool, error) {
	return db.HasRow(ctx, tx, fmt.Sprintf(`SELECT 1 FROM %s WHERE (%s) AND j.id = $%d`, rows, c.where, len(c.args)+1),
		append(slices.Clone(c.args), id)...)
}

// oldest orders jobs j for each.
const oldest = ` ORDER BY j.created_at, j.id`

// each calls move for the first jobs that match a condition, also after one of the calls failed.
func (s *Service) each(ctx context.Context, which condition, order string, move func(claimedJob) error) error {
	jobs, err := db.All(db.WithLimit(ctx, job.TTL/3), s.DB, scanJob, selectJob+which.where+order+` LIMIT 100`, which.args...)
	if err != nil {
		return fmt.Errorf("select separation jobs: %w", err)
	}
	var errs []error
	for _, j := range jobs {
		if err := move(j); err != nil {
			errs = append(errs, fmt.Errorf("move %s: %w", j.ID, err))
		}
	}
	return errors.Join(errs...)
}

// ending is how a job fails.
type ending struct {
	failure  *fault.Error // the owner reads it
	cause    error        // support reads it as well; may be nil
	withdraw bool         // the provider was not asked, or it refused
	still    condition    // looked at again when the job's row is locked; the zero value holds
}

// fail moves a job from QUEUED, SUBMITTING or PROCESSING to FAILED and refunds it, in one
// transaction, and removes its files. It writes nothing and reports
// false if another worker has moved the job since it was read.
func (s *Service) fail(ctx context.Context, j claimedJob, e ending) (moved bool, err error) {
	err = s.DB.InTx(ctx, func(tx *db.Tx) (err error) {
		moved, err = s.failIn(ctx, tx, j, e)
		return err
	})
	if err != nil {
		return false, err
	}
	s.removeOrphanStems(ctx, j)
	if moved {
		s.dropSource(context.WithoutCancel(ctx), j.SourceKey)
	}
	return moved, nil
}

// failIn is fail within a transaction.
func (s *Service) failIn(ctx context.Context, tx *db.Tx, j claimedJob, e ending) (moved bool, err error) {
	if err := s.jobs.Guard(ctx, tx, j.Claim, j.State); errors.Is(err, job.ErrMoved) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	if e.still.where != "" {
		if still, err := e.still.holds(ctx, tx, j.ID); err != nil || !still {
			return false, err
		}
	}
	if e.withdraw {
		if err := s.jobs.Withdraw(ctx, tx, j.ID); err != nil {
			return false, err
		}
	}
	ends, err := s.jobs.Fail(ctx, tx, e.failure, e.cause, `id = $5`, j.ID)
	return len(ends) == 1, err
}

// ended runs in the transaction that makes a separation READY or FAILED. A failed job is
// refunded, unless its owner deleted it after the provider was asked.
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
