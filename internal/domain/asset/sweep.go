// The sweep of assets: it deletes objects that nobody holds, deletes them again as long as a presigned upload could
// bring them back, and removes the rows of objects that have vanished.

package asset

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/work/job"
)

const (
	// sweepTime bounds one sweep. The next sweep continues with the oldest assets.
	sweepTime = 10 * time.Minute
	// sweepBatch is how many rows a sweep reads at a time.
	sweepBatch = 2000
	// parallelCalls bounds the concurrent calls of one sweep to the bucket.
	parallelCalls = 8
	// secondRemoval and lastRemoval are how long after it was given up an object is deleted again, because a PUT that
	// began earlier may have finished since.
	secondRemoval = time.Hour
	lastRemoval   = 24 * time.Hour
	// lookEvery is how often the sweep checks that an object is still there: a lifecycle rule of the bucket may have
	// removed it, or it may never have arrived.
	lookEvery = 24 * time.Hour
)

// Sweep erases the objects that no account and no running job holds, forgets assets whose objects are gone, and ends
// expired uploads and holds. It takes the oldest first, and ends when nothing is due or its time is up.
func (s *Service) Sweep(ctx context.Context) error {
	if s.Bucket == nil {
		return nil
	}
	end := time.Now().Add(sweepTime)
	return errors.Join(s.abandonAll(ctx, `created_at < now_ms() - $1`, uploadLifetime.Milliseconds()),
		s.endHolds(ctx, end), s.removeUnheld(ctx, end), s.lookForObjects(ctx, end))
}

// StoredBytes is the size of all assets in the database.
func (s *Service) StoredBytes(ctx context.Context) (n int64, err error) {
	err = s.DB.QueryRow(ctx, `SELECT CAST(COALESCE(SUM(size_bytes), 0) AS BIGINT) FROM assets WHERE given_up_at IS NULL`).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("add up assets: %w", err)
	}
	return n, nil
}

// endHolds deletes the given-up holds of assets that somebody else still holds, because such an asset is not erased.
func (s *Service) endHolds(ctx context.Context, end time.Time) error {
	for time.Now().Before(end) {
		ended, err := s.DB.Exec(ctx, `DELETE FROM asset_holders WHERE (user_id, asset_key) IN (SELECT h.user_id, h.asset_key FROM asset_holders h
			WHERE h.given_up_at IS NOT NULL AND EXISTS (SELECT 1 FROM asset_holders o WHERE o.asset_key = h.asset_key AND o.given_up_at IS NULL)
			LIMIT $1)`, sweepBatch)
		if err != nil {
			return fmt.Errorf("end holds: %w", err)
		}
		if ended < sweepBatch {
			break
		}
	}
	return nil
}

// unheld is the condition that nobody holds the asset in the row a.
var unheld = `NOT EXISTS (SELECT 1 FROM asset_holders o WHERE o.asset_key = a.asset_key AND o.given_up_at IS NULL)
	AND NOT ` + job.Held("a.asset_key")

// removeUnheld deletes every object that is due. An asset becomes due when its last holder gives it up; one whose
// holders' accounts are deleted comes first.
func (s *Service) removeUnheld(ctx context.Context, end time.Time) error {
	return s.eachDue(ctx, end, `SELECT a.asset_key, COALESCE(a.removal_at,
			(SELECT MAX(o.given_up_at) FROM asset_holders o WHERE o.asset_key = a.asset_key), 0) AS due
		FROM assets a WHERE (a.removal_at IS NULL OR a.removal_at <= now_ms())
			AND (a.removing_at IS NULL OR a.removing_at < now_ms() - $4) AND `+unheld,
		2*removalTimeout, s.remove)
}

// eachDue calls do for every key that a query returns, ordered by the time at which the key became due. If do fails for
// a key, eachDue does not try that key again. age is the query's $4.
func (s *Service) eachDue(ctx context.Context, end time.Time, query string, age time.Duration, do func(context.Context, Key) error) error {
	type row struct {
		key Key
		due int64
	}
	last := row{due: -1}
	var errs []error
	for time.Now().Before(end) {
		rows, err := db.All(ctx, s.DB, func(scan db.Scanner) (r row, err error) {
			var key string
			if err = scan.Scan(&key, &r.due); err == nil {
				r.key, err = ParseKey(key)
			}
			return r, err
		}, `SELECT asset_key, due FROM (`+query+`) AS q WHERE due > $1 OR due = $1 AND asset_key > $2 ORDER BY due, asset_key LIMIT $3`,
			last.due, last.key.String(), sweepBatch, age.Milliseconds())
		if err != nil {
			errs = append(errs, fmt.Errorf("look for assets: %w", err))
			break
		}
		errs = append(errs, objectstore.Each(parallelCalls, rows, func(_ int, r row) error { return do(ctx, r.key) }))
		if len(rows) < sweepBatch {
			break
		}
		last = rows[len(rows)-1]
	}
	return errors.Join(errs...)
}

// remove deletes the object of an asset, unless the asset is held again by now. Until the deletion has ended, the mark
// in its row keeps requests from using the object.
func (s *Service) remove(ctx context.Context, key Key) error {
	var seen bool
	var since, removals int64 // since is how long nobody has held the asset, in milliseconds
	err := s.DB.InTx(ctx, func(tx *db.Tx) error {
		// Hold locks the row first, so the second statement sees every hold that was written before this lock.
		if err := tx.QueryRow(ctx, `SELECT seen_at IS NOT NULL OR verified IS NOT NULL OR removal_at IS NOT NULL FROM assets
			WHERE asset_key = $1`+tx.ForUpdate(), key.String()).Scan(&seen); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `UPDATE assets AS a SET removing_at = now_ms(), given_up_at = COALESCE(given_up_at, now_ms()),
			removals = removals + 1, seen_at = NULL, verified = NULL WHERE a.asset_key = $1 AND `+unheld+`
			RETURNING removals, now_ms() - given_up_at`, key.String()).Scan(&removals, &since)
	})
	if db.IsNoRows(err) {
		return nil // it is held again
	}
	if err != nil {
		return fmt.Errorf("mark asset for removal: %w", err)
	}
	call, cancel := context.WithTimeout(ctx, removalTimeout)
	defer cancel()
	if !seen {
		// The file was only announced. If it was never uploaded, a single removal is enough, after the last upload that
		// may be in progress.
		if _, err := s.Bucket.Stat(call, key.String()); missing(err) {
			return s.noteRemoval(ctx, key, removals, lastRemoval, false)
		} else if err != nil {
			return fmt.Errorf("look for asset: %w", err)
		}
	}
	// Objects derived from the bytes go, too. If the same bytes are held under another extension, they are made again.
	if err := errors.Join(s.Bucket.Delete(call, key.String()), objectstore.DeletePrefix(call, s.Bucket, key.Derived(""))); err != nil {
		return fmt.Errorf("remove asset: %w", err)
	}
	if err := s.Cache.Drop(key.fileName()); err != nil {
		return err
	}
	next := time.Duration(0)
	switch {
	case since < secondRemoval.Milliseconds():
		next = secondRemoval
	case since < lastRemoval.Milliseconds():
		next = lastRemoval
	}
	return s.noteRemoval(ctx, key, removals, next, true)
}

// noteRemoval records that a removal has ended. next is how long after the asset was given up the next removal is due,
// or 0 if this was the last one. If the object was erased, the asset no longer counts for the accounts that gave it up,
// unless an upload URL may still be valid.
func (s *Service) noteRemoval(ctx context.Context, key Key, removals int64, next time.Duration, erased bool) error {
	err := s.DB.InTx(ctx, func(tx *db.Tx) error {
		var n int
		err := tx.QueryRow(ctx, `UPDATE assets SET removing_at = NULL, removal_at = given_up_at + $3
			WHERE asset_key = $1 AND removals = $2 AND given_up_at IS NOT NULL RETURNING 1`, key.String(), removals, next.Milliseconds()).Scan(&n)
		if db.IsNoRows(err) {
			return nil // it is held again
		}
		if err == nil && erased {
			_, err = tx.Exec(ctx, `DELETE FROM asset_holders WHERE asset_key = $1 AND given_up_at IS NOT NULL AND last_used_at < now_ms() - $2`,
				key.String(), urlLifetime.Milliseconds())
		}
		if err == nil && next == 0 {
			_, err = tx.Exec(ctx, `DELETE FROM assets WHERE asset_key = $1`, key.String())
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("note the removal of an asset: %w", err)
	}
	return nil
}

// lookForObjects looks for objects that were not seen for a day, and ends the holds of missing ones.
func (s *Service) lookForObjects(ctx context.Context, end time.Time) error {
	return s.eachDue(ctx, end, `SELECT a.asset_key, COALESCE(a.seen_at, 0) AS due FROM assets a WHERE COALESCE(a.seen_at, 0) < now_ms() - $4
		AND a.given_up_at IS NULL
		AND NOT EXISTS (SELECT 1 FROM asset_holders o WHERE o.asset_key = a.asset_key AND o.last_used_at > now_ms() - $4)`, lookEvery, s.lookFor)
}

func (s *Service) lookFor(ctx context.Context, key Key) error {
	info, err := s.Bucket.Stat(ctx, key.String())
	if err == nil {
		err = s.DB.InTx(ctx, func(tx *db.Tx) error {
			if _, err := tx.Exec(ctx, `UPDATE assets SET seen_at = now_ms(), size_bytes = $2, content_type = $3 WHERE asset_key = $1`,
				key.String(), info.SizeBytes, info.ContentType); err != nil {
				return err
			}
			return count(ctx, tx, key, info.SizeBytes)
		})
	} else if missing(err) {
		// A hold of the last day may belong to an upload in progress. Removing the unheld asset deletes the row.
		_, err = s.DB.Exec(ctx, `DELETE FROM asset_holders WHERE asset_key = $1 AND last_used_at < now_ms() - $2`,
			key.String(), lookEvery.Milliseconds())
	}
	if err != nil {
		return fmt.Errorf("look for asset: %w", err)
	}
	return nil
}
