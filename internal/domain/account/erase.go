package account

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/work/audit"
	"cutroom/internal/work/events"
	"cutroom/internal/work/job"
	"cutroom/internal/work/user"
)

// Delete removes a user and all of the user's data. Its first write hides the account from every request. Then Delete
// erases the files, and finally the row, which cascades to everything else. [Service.FinishErasures] completes an
// interrupted deletion. Deleting an unknown user succeeds. actor names the requester in the audit record.
func (s *Service) Delete(ctx context.Context, userID, actor string) error {
	var known bool
	err := s.o.DB.InTx(ctx, func(tx *db.Tx) error {
		known = true
		err := user.BeginErasure(ctx, tx, userID)
		if errors.Is(err, user.ErrDeleted) {
			known, err = user.Erasing(ctx, tx, userID)
			return err
		}
		if err != nil {
			return err
		}
		if err := events.Forget(ctx, tx, userID); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Entry{Actor: actor, Action: audit.AccountErased, Target: userID})
	})
	if err != nil || !known {
		return err
	}
	s.o.Log.Info("account deleted", "user", userID, "by", actor)
	// The deletion continues even if the client disconnects.
	return s.erase(context.WithoutCancel(ctx), userID)
}

func (s *Service) erase(ctx context.Context, userID string) error {
	for _, erase := range s.o.Erasers {
		if err := erase(ctx, userID); err != nil {
			return fmt.Errorf("erase user's files: %w", err)
		}
	}
	return s.o.DB.InTx(ctx, func(tx *db.Tx) error {
		if err := s.o.Credits.Forget(ctx, tx, userID); err != nil {
			return err
		}
		if err := job.Forget(ctx, tx, userID); err != nil {
			return err
		}
		return user.EndErasure(ctx, tx, userID)
	})
}

// FinishErasures completes interrupted deletions. It leaves recent ones to the request that is working on them. A
// failure does not stop the others.
func (s *Service) FinishErasures(ctx context.Context) error {
	ids, err := user.ErasingSince(ctx, s.o.DB, time.Minute)
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range ids {
		if err := s.erase(ctx, id); err != nil {
			errs = append(errs, err)
			continue
		}
		s.o.Log.Info("finished an interrupted account deletion", "user", id)
	}
	return errors.Join(errs...)
}
