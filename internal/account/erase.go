package account

import (
	"context"
	"errors"
	"fmt"

	"cutroom/internal/audit"
	"cutroom/internal/db"
)

// Delete removes a user and everything of theirs. From its first write on, the
// account does not exist for any request; then the files are erased, and last
// the row goes and takes credits and jobs with it. An interruption in between
// is finished by [Service.FinishErasures]. Deleting an unknown user succeeds.
// Actor is who asked for it, in the audit record's terms.
func (s *Service) Delete(ctx context.Context, userID, actor string) error {
	known := false
	err := s.db.InTx(ctx, func(tx *db.Tx) error {
		known = false
		n, err := tx.Exec(ctx, `UPDATE users SET erasing_at = now_ms() WHERE id = $1 AND erasing_at IS NULL`, userID)
		if err != nil {
			return fmt.Errorf("mark user for erasure: %w", err)
		}
		if n == 1 {
			known = true
			return audit.Record(ctx, tx, audit.Entry{Actor: actor, Action: audit.AccountErased, Target: userID})
		}
		err = tx.QueryRow(ctx, `SELECT COUNT(*) > 0 FROM users WHERE id = $1`, userID).Scan(&known)
		if err != nil {
			return fmt.Errorf("look for user: %w", err)
		}
		return nil
	})
	if err != nil || !known {
		return err
	}
	s.log.Info("account deleted", "user", userID, "by", actor)
	// The client may hang up; what it asked for goes on.
	return s.erase(context.WithoutCancel(ctx), userID)
}

func (s *Service) erase(ctx context.Context, userID string) error {
	for _, erase := range s.erasers {
		if err := erase(ctx, userID); err != nil {
			return fmt.Errorf("erase user's files: %w", err)
		}
	}
	return s.db.InTx(ctx, func(tx *db.Tx) error {
		if err := s.credits.Forget(ctx, tx, userID); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM users WHERE id = $1 AND erasing_at IS NOT NULL`, userID); err != nil {
			return fmt.Errorf("delete user: %w", err)
		}
		return nil
	})
}

// FinishErasures erases the accounts whose deletion was interrupted. Recent
// ones are left to the request that works on them. One that cannot be erased
// does not hold up the others.
func (s *Service) FinishErasures(ctx context.Context) error {
	rows, err := s.db.Query(ctx, `SELECT id FROM users WHERE erasing_at IS NOT NULL AND erasing_at < now_ms() - 60000`)
	if err != nil {
		return fmt.Errorf("look for unfinished erasures: %w", err)
	}
	var ids []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			rows.Close()
			return fmt.Errorf("look for unfinished erasures: %w", err)
		}
		ids = append(ids, id)
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return fmt.Errorf("look for unfinished erasures: %w", err)
	}
	var errs []error
	for _, id := range ids {
		if err := s.erase(ctx, id); err != nil {
			errs = append(errs, err)
			continue
		}
		s.log.Info("finished an interrupted account deletion", "user", id)
	}
	return errors.Join(errs...)
}
