package render

import (
	"context"
	"errors"

	"cutroom/internal/base/db"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/work/events"
	"cutroom/internal/work/job"
	"cutroom/internal/work/user"
)

// Delete cancels a running job and makes any job unknown to its owner. It erases the job's files; a worker on another
// replica erases what it still writes when it stops. Finished parts stay: they are the user's cache for the next film
// of the same source.
func (s *Service) Delete(ctx context.Context, owner, jobID string) error {
	return s.jobs.Delete(ctx, owner, jobID, func(tx *db.Tx) error {
		if err := s.jobs.Set(ctx, tx, jobID, job.SQL(`output_key = NULL, poster_key = NULL, spec = ''`)); err != nil {
			return err
		}
		if err := events.Drop(ctx, tx, jobID); err != nil {
			return err
		}
		_, err := s.jobs.FailAll(ctx, tx, job.ErrDeleted, nil, job.SQL(`id = $1 AND `+job.Unfinished, jobID))
		return err
	}, func(ctx context.Context) error { return s.jobs.EraseFiles(ctx, jobID) })
}

// dropIfErased removes what a worker stored after a deletion, of the job or of its owner's account, had erased the
// job's files.
func (s *Service) dropIfErased(ctx context.Context, j claimedJob) {
	var deleted bool
	err := s.DB.QueryRow(ctx, `SELECT deleted_at IS NOT NULL FROM jobs WHERE id = $1`, j.ID).Scan(&deleted)
	if err != nil && !db.IsNoRows(err) {
		return // the sweep removes the files
	}
	account := errors.Is(user.Check(ctx, s.DB, j.UserID), user.ErrDeleted)
	if !deleted && !account {
		return
	}
	err = s.jobs.EraseFiles(ctx, j.ID)
	if account {
		err = errors.Join(err, s.EraseCaches(ctx, j.UserID), objectstore.DeletePrefix(ctx, s.Store, "parts/"+j.UserID+"/"))
	}
	if err != nil {
		s.jobs.AttemptLog(j.Claim).Warn("files of a deleted render left; the sweep will remove them", "err", err)
	}
}
