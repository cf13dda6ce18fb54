package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/storage/objectstore"
)

// Delete makes a job unknown to its owner and stops its worker. end ends the job's rows in the same transaction. erase
// removes its files; if it fails, the sweeps remove them.
func (t Table) Delete(ctx context.Context, owner, id string, end func(tx *db.Tx) error, erase func(ctx context.Context) error) error {
	err := t.DB.InTx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE jobs AS j SET deleted_at = now_ms(), stored_bytes = 0
			WHERE j.id = $2 AND j.kind = $3 AND `+Known, owner, id, t.Kind)
		if err != nil {
			return fmt.Errorf("delete job: %w", err)
		}
		if n == 0 {
			return t.Unknown
		}
		if err := end(tx); err != nil {
			return err
		}
		return Announce(ctx, tx, id, revoked(id))
	})
	if err != nil {
		return err
	}
	// The erasure continues even if the client disconnects.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), eraseTimeout)
	defer cancel()
	if err := errors.Join(t.clearFolders(id), erase(ctx)); err != nil {
		t.Log.Warn("files of a deleted job left; the sweep will remove them", "job", id, "err", err)
	}
	return nil
}

// eraseTimeout bounds how long a client who deletes a job waits for the erasure of its files.
const eraseTimeout = 8 * time.Second

// Erase takes a user's unfinished jobs away from their workers for good, and removes the files of all the user's jobs,
// including those in the work folders on this disk. Deleting the user deletes the rows.
func (t Table) Erase(ctx context.Context, userID string) error {
	err := t.DB.InTx(ctx, func(tx *db.Tx) error {
		open, err := db.Texts(tx.Query(ctx, `UPDATE jobs SET fence = fence + 1, lease_owner = NULL, lease_until = NULL
			WHERE user_id = $1 AND kind = $2 AND `+Unfinished+` RETURNING id`, userID, t.Kind))
		if err != nil {
			return fmt.Errorf("stop jobs: %w", err)
		}
		for i, id := range open {
			open[i] = revoked(id)
		}
		return tx.Notify(ctx, open...)
	})
	if err != nil {
		return err
	}
	ids, err := db.Texts(t.DB.Query(ctx, `SELECT id FROM jobs WHERE user_id = $1 AND kind = $2`, userID, t.Kind))
	if err != nil {
		return fmt.Errorf("list jobs: %w", err)
	}
	if err := t.clearFolders(ids...); err != nil {
		return err
	}
	return t.EraseFiles(ctx, ids...)
}

// EraseFiles removes the uploads and the results of jobs.
func (t Table) EraseFiles(ctx context.Context, ids ...string) error {
	var prefixes []string
	for _, id := range ids {
		prefixes = append(prefixes, t.Kind+"/"+id+"/", "uploads/"+id+"/")
	}
	if err := objectstore.DeletePrefix(ctx, t.Store, prefixes...); err != nil {
		return fmt.Errorf("erase files of jobs: %w", err)
	}
	return nil
}

// expireBatch bounds the jobs that one transaction deletes.
const expireBatch = 1000

// Expire deletes the jobs that meet a condition and ended in the given state more than a lifetime ago. The totals keep
// counting them.
func (t Table) Expire(ctx context.Context, lifetime time.Duration, state, condition string) error {
	for {
		n, err := t.DB.Exec(ctx, `DELETE FROM jobs WHERE state = $2 AND id IN (SELECT id FROM jobs WHERE kind = $1 AND state = $2
			AND created_at < now_ms() - $3 AND finished_at < now_ms() - $3`+condition+` LIMIT $4)`,
			t.Kind, state, lifetime.Milliseconds(), expireBatch)
		if err != nil {
			return fmt.Errorf("expire jobs: %w", err)
		}
		if n < expireBatch {
			return nil
		}
	}
}

// Forget deletes all jobs of a user, in the transaction that deletes the account. The totals keep counting them, and
// count unfinished ones as failed. Call it late in the transaction, because other transactions wait for the totals that
// it locks.
func Forget(ctx context.Context, tx *db.Tx, userID string) error {
	gone := totals{}
	err := db.Each(ctx, tx, func(rows *db.Rows) error {
		var m moved
		var kind, state string
		if err := rows.Scan(append([]any{&kind, &state}, m.fields()...)...); err != nil {
			return err
		}
		if !ended(state) {
			gone.add(kind, "FAILED", m, 1)
		}
		return nil
	}, `DELETE FROM jobs WHERE user_id = $1 RETURNING kind, state, `+movedColumns, userID)
	if err != nil {
		return fmt.Errorf("delete jobs: %w", err)
	}
	return gone.write(ctx, tx)
}
