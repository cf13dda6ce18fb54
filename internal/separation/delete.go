package separation

import (
	"context"
	"errors"
	"fmt"

	"cutroom/internal/db"
	"cutroom/internal/fault"
	"cutroom/internal/job"
	"cutroom/internal/objectstore"
)

// errDeleted is why a job ends whose owner deleted it.
var errDeleted = fault.Failedf(fault.Interrupted, "Deleted by its owner")

// Delete makes a job unknown to its owner and erases its files. One that goes on
// ends with it, and is refunded where the provider has not been asked. Once it
// was, the provider cannot be stopped: the job stays in flight until the provider
// is done with it, so that no more run there than may, and what it made is not
// fetched.
func (s *Service) Delete(ctx context.Context, owner, jobID string) error {
	err := s.db.InTx(ctx, func(tx *db.Tx) error {
		// The lock on the row, which the next writes follow, comes with this one.
		j, err := scanJob(tx.QueryRow(ctx, `UPDATE separation_jobs AS j SET deleted_at = now_ms(), file_name = NULL
			WHERE j.id = $2 AND `+known+` RETURNING `+jobColumns, owner, jobID))
		if db.IsNoRows(err) {
			return errUnknownJob
		}
		if err != nil {
			return fmt.Errorf("delete separation job: %w", err)
		}
		if err := s.end(ctx, tx, j); err != nil {
			return err
		}
		return announce(ctx, tx, jobID, job.Revoked(jobID))
	})
	if err != nil {
		return err
	}
	// The client may hang up; what it asked for goes on.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), job.EraseTimeout)
	defer cancel()
	if err := errors.Join(job.Clear(s.WorkDir, jobID), objectstore.DeletePrefix(ctx, s.Store, "uploads/"+jobID+"/"),
		s.Sweeper.Clean(ctx, kindStems, folder(jobID))); err != nil {
		s.log.Warn("files of a deleted separation left; the sweep will remove them", "job", jobID, "err", err)
	}
	return nil
}

// end brings a job that is being deleted to its end, unless the provider is at it.
func (s *Service) end(ctx context.Context, tx *db.Tx, j claimedJob) error {
	switch {
	case j.State == StateReady:
		if _, err := tx.Exec(ctx, `UPDATE separation_jobs SET state = 'DISPOSED' WHERE id = $1`, j.ID); err != nil {
			return fmt.Errorf("dispose of separation job: %w", err)
		}
		return forgetStems(ctx, tx, j.ID)
	case j.State == StateFailed, j.State == StateDisposed, j.IntentAt.Valid && !j.DoneAt.Valid:
		return nil
	}
	_, err := failed(ctx, tx, j, errDeleted, errDeleted)
	return err
}

// forgetStems removes the rows of a job's stems. Objects that a render holds stay
// until it has ended.
func forgetStems(ctx context.Context, tx *db.Tx, jobID string) error {
	if _, err := tx.Exec(ctx, `DELETE FROM separation_stems WHERE job_id = $1`, jobID); err != nil {
		return fmt.Errorf("forget stems: %w", err)
	}
	return nil
}
