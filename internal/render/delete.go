package render

import (
	"context"
	"errors"
	"fmt"

	"cutroom/internal/db"
	"cutroom/internal/events"
	"cutroom/internal/job"
	"cutroom/internal/objectstore"
	"cutroom/internal/user"
)

// sentenceDeleted is the error in the row of a job that its owner stopped.
const sentenceDeleted = "Deleted by its owner"

// Delete cancels a running job and makes any job unknown to its owner. It erases the
// job's files; a worker on another replica erases what it still writes when it stops.
// Finished parts stay: they are the user's cache for the next film of the same source.
func (s *Service) Delete(ctx context.Context, owner, jobID string) error {
	return s.jobs.Delete(ctx, owner, jobID, func(tx *db.Tx) error {
		// The raised fence takes the job from its worker, whose last write then matches
		// no row.
		if _, err := tx.Exec(ctx, `UPDATE render_jobs SET output_key = NULL, poster_key = NULL, spec = '',
				error = CASE WHEN state IN ('PENDING', 'PROCESSING') THEN $2 ELSE error END,
				state = CASE WHEN state IN ('PENDING', 'PROCESSING') THEN 'FAILED' ELSE state END,
				finished_at = COALESCE(finished_at, now_ms()),
				replica = COALESCE(lease_owner, replica), lease_owner = NULL, lease_until = NULL, fence = fence + 1
			WHERE id = $1`, jobID, sentenceDeleted); err != nil {
			return fmt.Errorf("end deleted render: %w", err)
		}
		if err := events.Drop(ctx, tx, jobID); err != nil {
			return err
		}
		return release(ctx, tx, jobID)
	}, func(ctx context.Context) error { return s.eraseJobs(ctx, jobID) })
}

// eraseJobs removes the objects that only these jobs need.
func (s *Service) eraseJobs(ctx context.Context, ids ...string) error {
	var prefixes []string
	for _, id := range ids {
		prefixes = append(prefixes, "render/"+id+"/", "uploads/"+id+"/")
	}
	if err := objectstore.DeletePrefix(ctx, s.Store, prefixes...); err != nil {
		return fmt.Errorf("erase renders: %w", err)
	}
	return nil
}

// dropIfErased removes what a worker stored after a deletion, of the job or of its
// owner's account, had erased the job's files.
func (s *Service) dropIfErased(ctx context.Context, j claimedJob) {
	var deleted bool
	err := s.db.QueryRow(ctx, `SELECT deleted_at IS NOT NULL FROM render_jobs WHERE id = $1`, j.ID).Scan(&deleted)
	if err != nil && !db.IsNoRows(err) {
		return // the sweep removes the files
	}
	account := errors.Is(user.Check(ctx, s.db, j.UserID), user.ErrDeleted)
	if !deleted && !account {
		return
	}
	err = s.eraseJobs(ctx, j.ID)
	if account {
		err = errors.Join(err, s.EraseCaches(ctx, j.UserID), objectstore.DeletePrefix(ctx, s.Store, "parts/"+j.UserID+"/"))
	}
	if err != nil {
		s.jobs.AttemptLog(j.Claim).Warn("files of a deleted render left; the sweep will remove them", "err", err)
	}
}

// stillRendered returns ErrMoved unless a worker holds the job.
func (s *Service) stillRendered(ctx context.Context, q db.Querier, jobID, forUpdate string) error {
	var one int
	err := q.QueryRow(ctx, `SELECT 1 FROM render_jobs WHERE id = $1 AND state = 'PROCESSING'
		AND lease_owner IS NOT NULL`+forUpdate, jobID).Scan(&one)
	if db.IsNoRows(err) {
		return job.ErrMoved
	}
	if err != nil {
		return fmt.Errorf("look up render: %w", err)
	}
	return nil
}
