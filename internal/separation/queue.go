package separation

import (
	"context"
	"errors"
	"fmt"

	"cutroom/internal/credit"
	"cutroom/internal/db"
	"cutroom/internal/fault"
	"cutroom/internal/job"
	"cutroom/internal/user"
)

// queueLock orders submissions and claims over all replicas.
const queueLock = "separation-queue"

// TopicQueue announces that places in the queue have changed.
const TopicQueue = "separation-queue"

// announce tells of a change of a job to those who wait for it, and to the
// listeners of the topics.
func announce(ctx context.Context, tx *db.Tx, jobID string, topics ...string) error {
	for _, t := range append(topics, job.Topic(jobID)) {
		if err := tx.Notify(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// inFlight is the states that count against the limit. Every query on one of
// them names both, because SQLite uses a partial index only where its own
// condition is written out. And the sweeps write COALESCE(time, 0),
// because a bare range over a time would draw SQLite to the index on that time,
// which holds every job that ever ended.
const inFlight = `state IN ('SUBMITTING', 'PROCESSING')`

// ownerStays is the condition that the account of job j is not being deleted.
var ownerStays = user.Stays("j.user_id")

// next gets a job for this replica to work on, where it can work: one whose
// worker is gone, or else from the queue.
func (s *Service) next(ctx context.Context) (j claimedJob, ok bool, err error) {
	// Cheap to find out for those who find nothing. In the order of the queue's
	// index, or PostgreSQL may look through jobs that have ended.
	var waiting int
	err = s.db.QueryRow(ctx, `SELECT COALESCE(
		(SELECT 1 FROM separation_jobs WHERE `+inFlight+` AND state = 'PROCESSING' AND COALESCE(lease_until, 0) < now_ms() LIMIT 1),
		(SELECT 1 FROM separation_jobs WHERE state = 'QUEUED'
			AND (SELECT COUNT(*) FROM separation_jobs WHERE `+inFlight+`) < $1 ORDER BY created_at, id LIMIT 1), 0)`, s.InFlight).Scan(&waiting)
	if err != nil {
		return j, false, fmt.Errorf("look for separation jobs: %w", err)
	}
	if waiting == 0 {
		return j, false, nil
	}
	if _, unable := s.CanWork(ctx); unable != nil {
		return j, false, nil // it says itself why
	}
	message := "separation taken over"
	if j, ok, err = s.adopt(ctx); err == nil && !ok {
		message = "separation claimed"
		j, ok, err = s.claim(ctx)
	}
	if ok {
		s.jobLog(j).Info(message)
	}
	return j, ok, err
}

// claim takes the oldest queued job that this replica can run, if the provider
// has room for it. Counting and claiming are one step over all replicas.
func (s *Service) claim(ctx context.Context) (j claimedJob, ok bool, err error) {
	err = s.db.InTx(ctx, func(tx *db.Tx) error {
		ok = false
		if err := tx.Lock(ctx, queueLock); err != nil {
			return err
		}
		var taken int
		err := tx.QueryRow(ctx, `SELECT COUNT(*) FROM separation_jobs WHERE `+inFlight).Scan(&taken)
		if err != nil {
			return fmt.Errorf("count jobs in flight: %w", err)
		}
		if taken >= s.InFlight {
			return nil
		}
		row := tx.QueryRow(ctx, `UPDATE separation_jobs SET state = 'SUBMITTING', submitting_at = now_ms(),
				attempts = attempts + 1, lease_owner = $1, lease_until = now_ms() + $2, fence = fence + 1
			WHERE state = 'QUEUED' AND id = (
				SELECT j.id FROM separation_jobs j
				WHERE j.state = 'QUEUED' AND (j.node_id IS NULL OR j.node_id = $3) AND `+ownerStays+`
				ORDER BY j.created_at, j.id LIMIT 1)
			RETURNING `+jobColumns, s.Renewer.Owner(), job.TTL.Milliseconds(), s.NodeID)
		if j, err = scanJob(row); db.IsNoRows(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("claim separation job: %w", err)
		}
		ok = true
		return announce(ctx, tx, j.ID, TopicQueue)
	})
	return j, ok, err
}

// adopt takes over a PROCESSING job whose worker is gone. The provider's
// project id is in the row, so the provider is not asked again, and nothing on
// the dead worker's disk is needed: the job belongs to our node from here on.
func (s *Service) adopt(ctx context.Context) (j claimedJob, ok bool, err error) {
	err = s.db.InTx(ctx, func(tx *db.Tx) error {
		ok = false
		row := tx.QueryRow(ctx, `UPDATE separation_jobs SET lease_owner = $1, lease_until = now_ms() + $2,
				fence = fence + 1, node_id = NULLIF($3, '')
			WHERE state = 'PROCESSING' AND id = (
				SELECT j.id FROM separation_jobs j
				WHERE j.`+inFlight+` AND j.state = 'PROCESSING' AND (j.lease_until IS NULL OR j.lease_until < now_ms()) AND `+ownerStays+`
				ORDER BY j.created_at, j.id LIMIT 1`+s.db.SkipLockedOf("j")+`)
			RETURNING `+jobColumns, s.Renewer.Owner(), job.TTL.Milliseconds(), s.NodeID)
		if j, err = scanJob(row); db.IsNoRows(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("adopt separation job: %w", err)
		}
		ok = true
		return nil
	})
	return j, ok, err
}

// requeueDead puts back the jobs whose worker died while submitting, and fails
// those of them that the provider may have heard of.
func (s *Service) requeueDead(ctx context.Context) error {
	return s.recover(ctx, `(lease_until IS NULL OR lease_until < now_ms())`)
}

// requeueStuck does the same for workers that live but have been submitting
// for longer than the threshold.
func (s *Service) requeueStuck(ctx context.Context) error {
	return s.recover(ctx, `COALESCE(submitting_at, 0) < now_ms() - $1`, s.StuckAfter.Milliseconds())
}

func (s *Service) recover(ctx context.Context, which string, args ...any) error {
	return s.each(ctx, func(j claimedJob) (err error) {
		var moved bool
		switch {
		case j.IntentAt.Valid:
			s.jobLog(j).Warn("worker lost while the provider may have been starting the job; it is failed, not asked twice")
			moved, err = s.fail(ctx, j, errInterrupted, errors.New("the worker was lost while the provider may have been starting the job"))
		case j.Attempts >= maxAttempts:
			moved, err = s.fail(ctx, j, errInterrupted, fmt.Errorf("%d workers were lost or stuck while submitting", j.Attempts))
		default:
			moved, err = s.requeue(ctx, j, 0)
		}
		if moved {
			s.jobLog(j).Warn("recovered a job from SUBMITTING")
		}
		return err
	}, inFlight+` AND state = 'SUBMITTING' AND `+which, args...)
}

// each moves the jobs of a condition, oldest first. One that cannot be moved does
// not hold up the others.
func (s *Service) each(ctx context.Context, move func(claimedJob) error, where string, args ...any) error {
	jobs, err := db.All(ctx, s.db, scanJob, `SELECT `+jobColumns+` FROM separation_jobs WHERE `+where+` ORDER BY created_at, id LIMIT 100`, args...)
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

// requeue moves SUBMITTING to QUEUED, at the same place in the queue, and
// takes the lease away from whoever had it. forgive is how many attempts the
// move takes back: a clean stop is no failed attempt. submitting_at becomes the
// time of the move, so that the job, which is old by now, is not taken for one
// that waited all the while in a queue that stands still.
func (s *Service) requeue(ctx context.Context, j claimedJob, forgive int) (bool, error) {
	moved := false
	err := s.db.InTx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE separation_jobs SET state = 'QUEUED', submitting_at = now_ms(), lease_owner = NULL,
				lease_until = NULL, fence = fence + 1, attempts = attempts - $3
			WHERE id = $1 AND state = 'SUBMITTING' AND fence = $2 AND submit_intent_at IS NULL`, j.ID, j.Fence, forgive)
		if err != nil {
			return fmt.Errorf("requeue separation job: %w", err)
		}
		moved = n == 1
		return announce(ctx, tx, j.ID, topic, TopicQueue)
	})
	return moved, err
}

// fail moves a job from QUEUED, SUBMITTING or PROCESSING to FAILED and refunds
// it, in one transaction. What its owner is told is a sentence and a reason; the
// cause is for support. It writes nothing and reports false when the job has moved
// on since it was read.
func (s *Service) fail(ctx context.Context, j claimedJob, told *fault.Error, cause error) (moved bool, err error) {
	err = s.db.InTx(ctx, func(tx *db.Tx) (err error) {
		moved, err = failed(ctx, tx, j, told, cause)
		return err
	})
	if err == nil && moved {
		s.dropSource(context.WithoutCancel(ctx), j.SourceKey)
	}
	return moved, err
}

// failed is fail within a transaction. A job that its owner deleted is refunded
// only where the provider was not asked.
func failed(ctx context.Context, tx *db.Tx, j claimedJob, told *fault.Error, cause error) (moved bool, err error) {
	var forfeit bool
	err = tx.QueryRow(ctx, `UPDATE separation_jobs SET state = 'FAILED', error = $3, error_code = $6, failure_cause = $5,
			finished_at = now_ms(), replica = COALESCE(lease_owner, replica), lease_owner = NULL, lease_until = NULL, fence = fence + 1
		WHERE id = $1 AND fence = $2 AND state = $4 AND state IN ('QUEUED', 'SUBMITTING', 'PROCESSING')
		RETURNING deleted_at IS NOT NULL AND submit_intent_at IS NOT NULL`,
		j.ID, j.Fence, told.Answer(), j.State, fault.Cause(cause), told.Reason).Scan(&forfeit)
	if db.IsNoRows(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("fail separation job: %w", err)
	}
	if !forfeit {
		if _, err := credit.Refund(ctx, tx, j.UserID, j.ID); err != nil {
			return false, err
		}
	}
	return true, announce(ctx, tx, j.ID, topic, TopicQueue)
}
