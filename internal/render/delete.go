package render

import (
	"context"
	"errors"
	"fmt"

	"cutroom/internal/db"
	"cutroom/internal/job"
	"cutroom/internal/objectstore"
	"cutroom/internal/user"
)

// sentenceDeleted is what the row of a job says whose owner stopped it.
const sentenceDeleted = "Deleted by its owner"

// deleteSQL ends a job and hides it from its owner, in whatever state it is. The
// raised fence takes it from its worker, whose last write then matches no row.
var deleteSQL = `UPDATE render_jobs AS j SET deleted_at = now_ms(), output_key = NULL, poster_key = NULL,
		error = CASE WHEN state IN ('PENDING', 'PROCESSING') THEN $3 ELSE error END,
		state = CASE WHEN state IN ('PENDING', 'PROCESSING') THEN 'FAILED' ELSE state END,
		finished_at = COALESCE(finished_at, now_ms()),
		replica = COALESCE(lease_owner, replica), lease_owner = NULL, lease_until = NULL, fence = fence + 1
	WHERE j.id = $2 AND ` + known

// Delete cancels a job that goes on, and makes any job unknown to its owner. Its
// files are erased, at the latest when a worker elsewhere has stopped. Finished
// parts stay: they are the cache of the user, for the next film of the same source.
func (s *Service) Delete(ctx context.Context, owner, jobID string) error {
	err := s.db.InTx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, deleteSQL, owner, jobID, sentenceDeleted)
		if err != nil {
			return fmt.Errorf("delete render job: %w", err)
		}
		if n == 0 {
			return errUnknownJob
		}
		return errors.Join(ended(ctx, tx, jobID), tx.Notify(ctx, job.Revoked(jobID)))
	})
	if err != nil {
		return err
	}
	// The client may hang up; what it asked for goes on.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), job.EraseTimeout)
	defer cancel()
	if err := errors.Join(job.Clear(s.WorkDir, jobID), s.eraseJobs(ctx, jobID)); err != nil {
		s.log.Warn("files of a deleted render left; the sweep will remove them", "job", jobID, "err", err)
	}
	return nil
}

// eraseJobs removes what is stored for these jobs alone.
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

// dropIfErased removes what a worker stored after the job's files had been erased:
// a deletion, of the job or its owner's account, took the job away while the worker
// was still writing.
func (s *Service) dropIfErased(ctx context.Context, j claimedJob) {
	var deleted bool
	err := s.db.QueryRow(ctx, `SELECT deleted_at IS NOT NULL FROM render_jobs WHERE id = $1`, j.ID).Scan(&deleted)
	if err != nil && !db.IsNoRows(err) {
		return // the sweep finds out
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
		s.jobLog(j).Warn("files of a deleted render left; the sweep will remove them", "err", err)
	}
}

// untilRevoked returns a context that ends when nobody works on a job any more,
// because it or its owner's account was deleted, for those who only help with it.
func (s *Service) untilRevoked(ctx context.Context, jobID string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	revoked, deaf := s.db.Listen(job.Revoked(jobID))
	go func() {
		defer deaf()
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-revoked:
				if err := s.stillRendered(ctx, s.db, jobID, ""); errors.Is(err, job.ErrMoved) {
					cancel()
				}
			}
		}
	}()
	return ctx, cancel
}

// stillRendered answers ErrMoved unless some worker has the job.
func (s *Service) stillRendered(ctx context.Context, q db.Querier, jobID, forUpdate string) error {
	var one int
	err := q.QueryRow(ctx, `SELECT 1 FROM render_jobs WHERE id = $1 AND state = 'PROCESSING' AND lease_owner IS NOT NULL`+forUpdate, jobID).Scan(&one)
	if db.IsNoRows(err) {
		return job.ErrMoved
	}
	if err != nil {
		return fmt.Errorf("look after render: %w", err)
	}
	return nil
}
