package separation

import (
	"context"
	"errors"
	"fmt"

	"cutroom/internal/db"
	"cutroom/internal/events"
	"cutroom/internal/fault"
	"cutroom/internal/objectstore"
)

// errDeleted ends a job that its owner deleted.
var errDeleted = fault.Failedf(fault.Interrupted, "Deleted by its owner")

// Delete makes a job unknown to its owner and erases its files. If the provider has not
// been asked, the job ends and is refunded. The provider cannot be stopped once it was
// asked: the job then counts as in flight until the provider is done, and its stems are
// not fetched.
func (s *Service) Delete(ctx context.Context, owner, jobID string) error {
	return s.jobs.Delete(ctx, owner, jobID, func(tx *db.Tx) error {
		j, err := s.scanJob(tx.QueryRow(ctx, `UPDATE separation_jobs SET file_name = NULL, reference = NULL WHERE id = $1 RETURNING `+jobColumns, jobID))
		if err != nil {
			return fmt.Errorf("delete separation job: %w", err)
		}
		if err := events.Drop(ctx, tx, jobID); err != nil {
			return err
		}
		return s.end(ctx, tx, j)
	}, func(ctx context.Context) error {
		return errors.Join(objectstore.DeletePrefix(ctx, s.Store, "uploads/"+jobID+"/"), s.Sweeper.Clean(ctx, kindStems, folder(jobID)))
	})
}

// end ends a deleted job, unless the provider is working on it.
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
	_, err := s.failIn(ctx, tx, j, errDeleted, errDeleted)
	return err
}

// forgetStems removes the rows of a job's stems. Objects that a render holds stay until
// that render has ended.
func forgetStems(ctx context.Context, tx *db.Tx, jobID string) error {
	if _, err := tx.Exec(ctx, `DELETE FROM separation_stems WHERE job_id = $1`, jobID); err != nil {
		return fmt.Errorf("forget stems: %w", err)
	}
	return nil
}
