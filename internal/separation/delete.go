package separation

import (
	"context"
	"errors"
	"fmt"

	"cutroom/internal/db"
	"cutroom/internal/events"
	"cutroom/internal/job"
	"cutroom/internal/objectstore"
)

// Delete makes a job unknown to its owner and erases its files. If the provider has not
// been asked, the job ends and is refunded. The provider cannot be stopped once it was
// asked: the job then counts as in flight until the provider is done, and its stems are
// not fetched.
func (s *Service) Delete(ctx context.Context, owner, jobID string) error {
	return s.jobs.Delete(ctx, owner, jobID, func(tx *db.Tx) error {
		if err := s.jobs.Set(ctx, tx, jobID, `file_name = NULL, reference = NULL`); err != nil {
			return err
		}
		j, err := scanJob(tx.QueryRow(ctx, selectJob+`j.id = $1`, jobID))
		if err != nil {
			return fmt.Errorf("read deleted separation: %w", err)
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
		return s.forgetStems(ctx, tx, j.ID)
	case j.State == StateFailed, j.State == StateDisposed, j.AskedAt.Valid && !j.DoneAt.Valid:
		return nil
	}
	_, err := s.failIn(ctx, tx, j, job.ErrDeleted, job.ErrDeleted)
	return err
}

// forgetStems moves READY to DISPOSED and removes the rows of the stems. The transaction has locked
// the job's row. Objects that a render holds stay until that render has ended.
func (s *Service) forgetStems(ctx context.Context, tx *db.Tx, jobID string) error {
	if _, err := tx.Exec(ctx, `DELETE FROM separation_stems WHERE job_id = $1`, jobID); err != nil {
		return fmt.Errorf("forget stems: %w", err)
	}
	_, err := s.jobs.Move(ctx, tx, jobID, StateReady, StateDisposed, `, stored_bytes = 0`, "")
	return err
}

// keepStems locks the row of a separation if its stems may be read. No stem of it is removed before the
// transaction ends. Whoever removes stems later locks the same row first and then looks with a new statement,
// which sees what this transaction wrote.
func keepStems(ctx context.Context, tx *db.Tx, jobID string) (ok bool, err error) {
	ok, err = db.HasRow(ctx, tx, `SELECT 1 FROM jobs j WHERE j.id = $1 AND `+readable+tx.ForUpdate(), jobID)
	if err != nil {
		err = fmt.Errorf("keep stems: %w", err)
	}
	return ok, err
}
