// The files of a job after its end: stems are kept while somebody may read them, and removed when their owner deletes
// the job or nobody collects them.

package separation

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"cutroom/internal/base/db"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/work/events"
	"cutroom/internal/work/job"
	"cutroom/internal/work/user"
)

// readable is the condition that the stems of job j may be downloaded with a token.
var readable = `j.state = 'READY' AND j.deleted_at IS NULL AND ` + user.Exists("j.user_id")

// keepStems locks the row of a separation if its stems may be read. No stem of it is removed before the transaction
// ends. Code that removes stems must lock this row first, and only then check who reads them: its next statement sees
// what this transaction wrote.
func keepStems(ctx context.Context, tx *db.Tx, jobID string) (ok bool, err error) {
	ok, err = db.HasRow(ctx, tx, `SELECT 1 FROM jobs j WHERE j.id = $1 AND `+readable+tx.ForUpdate(), jobID)
	if err != nil {
		err = fmt.Errorf("keep stems: %w", err)
	}
	return ok, err
}

// Keep locks the separations of stems, so that no stem is removed between this check and the commit of the transaction,
// which holds the stems. It returns invalid_stem_url if one may no longer be read.
func Keep(ctx context.Context, tx *db.Tx, stems ...StemRef) error {
	ids := make([]string, len(stems))
	for i, t := range stems {
		ids[i] = t.JobID
	}
	slices.Sort(ids) // the same order in every transaction
	for _, id := range slices.Compact(ids) {
		if ok, err := keepStems(ctx, tx, id); err != nil {
			return err
		} else if !ok {
			return errInvalidStemURL
		}
	}
	return nil
}

// forgetStems moves READY to DISPOSED and removes the rows of the stems. The transaction has locked the job's row.
// Objects that a render holds stay until that render has ended.
func (s *Service) forgetStems(ctx context.Context, tx *db.Tx, jobID string) error {
	if _, err := tx.Exec(ctx, `DELETE FROM separation_stems WHERE job_id = $1`, jobID); err != nil {
		return fmt.Errorf("forget stems: %w", err)
	}
	_, err := s.jobs.Move(ctx, tx, jobID, StateReady, StateDisposed, job.SQL(`stored_bytes = 0`), job.Fragment{})
	return err
}

// abandoned is the condition that the stems of a READY separation were not collected for $1 milliseconds, and that no
// render reads them.
var abandoned = `COALESCE(d.collected_at, 0) < now_ms() - $1
	AND NOT EXISTS (SELECT 1 FROM separation_stems t WHERE t.job_id = d.job_id AND ` + job.Held("t.object_key") + `)`

// disposeAbandoned removes results that nobody collected. Stems that a render still reads stay until it has ended.
func (s *Service) disposeAbandoned(ctx context.Context) error {
	ids, err := db.Texts(s.DB.Query(db.WithLimit(ctx, job.TTL/3), `SELECT j.id FROM `+rows+` WHERE j.state = 'READY'
		AND j.finished_at < now_ms() - $1 AND `+abandoned+` ORDER BY j.finished_at LIMIT 100`, s.AbandonAfter.Milliseconds()))
	if err != nil {
		return fmt.Errorf("look for abandoned stems: %w", err)
	}
	for _, id := range ids {
		err = errors.Join(err, s.dispose(ctx, id))
	}
	return err
}

// dispose moves READY to DISPOSED unless the job was collected, or a render began to read it, since it was selected.
func (s *Service) dispose(ctx context.Context, jobID string) error {
	still := false
	err := s.DB.InTx(ctx, func(tx *db.Tx) (err error) {
		if still, err = keepStems(ctx, tx, jobID); err != nil || !still {
			return err
		}
		still, err = db.HasRow(ctx, tx, `SELECT 1 FROM separations d WHERE d.job_id = $2 AND `+abandoned,
			s.AbandonAfter.Milliseconds(), jobID)
		if err != nil || !still {
			return err
		}
		if err := s.forgetStems(ctx, tx, jobID); err != nil {
			return err
		}
		return job.Announce(ctx, tx, jobID)
	})
	if err != nil || !still {
		return err
	}
	if err := s.Sweeper.Clean(ctx, kindStems, folder(jobID)); err != nil {
		s.Log.Warn("stems not deleted; the sweep of orphans will", "job", jobID, "err", err)
	}
	return nil
}

// Delete makes a job unknown to its owner and erases its files. If the provider has not been asked, the job ends and
// is refunded. Otherwise it counts as in flight until the provider is done, and its stems are not fetched.
func (s *Service) Delete(ctx context.Context, owner, jobID string) error {
	return s.jobs.Delete(ctx, owner, jobID, func(tx *db.Tx) error {
		if err := s.jobs.Set(ctx, tx, jobID, job.SQL(`file_name = NULL, reference = NULL`)); err != nil {
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
	_, err := s.jobs.Fail(ctx, tx, j.Claim, job.Ending{Failure: job.ErrDeleted, Cause: job.ErrDeleted})
	return err
}

// cleanUp removes the leftover files of a job that has failed, that another worker has, or whose row is gone.
func (s *Service) cleanUp(ctx context.Context, c job.Claim, r job.Result) {
	if r == job.Left || r == job.Failed {
		s.removeOrphanStems(ctx, c)
	}
	if r != job.Failed {
		return
	}
	ctx = context.WithoutCancel(ctx)
	var source string
	if err := s.DB.QueryRow(ctx, `SELECT source_key FROM separations WHERE job_id = $1`, c.ID).Scan(&source); err != nil {
		if !db.IsNoRows(err) { // else the erasure of the account removes it
			s.jobs.AttemptLog(c).Warn("source not deleted; the sweep will", "err", err)
		}
		return
	}
	s.dropSource(ctx, source)
}

// removeOrphanStems removes stored stems of a job that will not be READY. The sweep of orphans removes the rest.
func (s *Service) removeOrphanStems(ctx context.Context, c job.Claim) {
	if c.State != StateProcessing {
		return // nothing can have been stored yet
	}
	err := user.Check(ctx, s.DB, c.UserID)
	if errors.Is(err, user.ErrDeleted) { // whatever the job's row says, if it still exists
		err = objectstore.DeletePrefix(ctx, s.Store, folder(c.ID))
	} else if err == nil {
		err = s.Sweeper.Clean(ctx, kindStems, folder(c.ID))
	}
	if err != nil {
		s.jobs.AttemptLog(c).Warn("orphaned stems not deleted; the sweep of orphans will", "err", err)
	}
}
