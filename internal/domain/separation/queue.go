package separation

import (
	"context"
	"fmt"

	"cutroom/internal/base/db"
	"cutroom/internal/work/job"
	"cutroom/internal/work/user"
)

// TopicQueue announces that places in the queue have changed. It also names the lock that orders submissions and
// claims over all replicas.
const TopicQueue = "separation-queue"

// The conditions of jobs j that wait, and of those that count against the limit. A query for a single state at work
// names inFlight as well, because a database uses a partial index only if the query repeats the index's condition.
const (
	queued   = `j.kind = 'separation' AND j.` + job.Waiting
	inFlight = `j.kind = 'separation' AND j.` + job.AtWork
)

// belowLimit is the condition that fewer jobs than $1 are in flight.
const belowLimit = `(SELECT COUNT(*) FROM jobs j WHERE ` + inFlight + `) < $1`

// ownerNotErasing is the condition that the account of job j is not being deleted.
var ownerNotErasing = user.NotErasing("j.user_id")

// oldest orders jobs j.
const oldest = ` ORDER BY j.created_at, j.id`

// claim claims a job for this replica: a PROCESSING one whose worker died, or else the oldest queued one, if the limit
// of jobs in flight allows it. Counting and claiming are one step over all replicas. A PROCESSING job has the
// provider's project id in its row, so the provider is not asked again.
func (s *Service) claim(ctx context.Context) (claimedJob, bool, error) {
	return job.Queue[claimedJob]{Table: s.jobs, Look: s.look, Read: func(ctx context.Context, tx *db.Tx, c job.Claim) (claimedJob, error) {
		j, err := scanJob(tx.QueryRow(ctx, selectJob+`j.id = $1`, c.ID))
		if err != nil {
			return j, fmt.Errorf("read claimed separation: %w", err)
		}
		j.Claim = c
		return j, nil
	}}.Claim(ctx)
}

// look is the cheap query with which most claims end. It sorts in the order of the queue's index; otherwise PostgreSQL
// may read jobs that have ended.
func (s *Service) look(ctx context.Context) ([]job.Pick, error) {
	var waiting int
	err := s.DB.QueryRow(ctx, `SELECT COALESCE(
		(SELECT 1 FROM jobs j WHERE `+inFlight+` AND j.state = 'PROCESSING' AND COALESCE(j.lease_until, 0) < now_ms() LIMIT 1),
		(SELECT 1 FROM jobs j WHERE `+queued+` AND `+notPaused+`
			AND `+belowLimit+oldest+` LIMIT 1), 0)`, s.InFlight).Scan(&waiting)
	if err != nil || waiting == 0 {
		return nil, err
	}
	if _, unable := s.CanWork(ctx); unable != nil {
		return nil, nil // CanWork logs the reason
	}
	return []job.Pick{
		{From: StateProcessing, To: StateProcessing, Job: job.SQL(`SELECT j.id FROM jobs j
			WHERE ` + inFlight + ` AND j.state = 'PROCESSING' AND (j.lease_until IS NULL OR j.lease_until < now_ms()) AND ` +
			ownerNotErasing + oldest + ` LIMIT 1` + s.DB.SkipLockedOf("j"))},
		{From: StateQueued, To: StateSubmitting, Lock: TopicQueue, Job: job.SQL(`SELECT j.id FROM jobs j
			WHERE `+queued+` AND `+notPaused+` AND `+ownerNotErasing+` AND `+belowLimit+oldest+` LIMIT 1`, s.InFlight),
			Set: job.SQL(`submitting_at = now_ms()`), Topics: []string{TopicQueue}},
	}, nil
}
