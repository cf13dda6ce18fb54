package asset

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cutroom/internal/db"
	"cutroom/internal/job"
	"cutroom/internal/objectstore"
)

const (
	// sweepBatch bounds the objects that one sweep removes, and those it looks for.
	sweepBatch = 2000
	// parallelCalls bounds the calls of one sweep to the bucket at a time.
	parallelCalls = 8
	// lateUpload is how long an upload may still end after its asset was released.
	lateUpload = 24 * time.Hour
	// sightEvery is how often an object is looked for: a rule of the bucket may have
	// removed it, or it may never have arrived.
	sightEvery = 24 * time.Hour
)

// Sweep erases the objects that no account and no running job holds, forgets assets
// whose objects are gone, and ends expired uploads and holds.
func (s *Service) Sweep(ctx context.Context) error {
	if s.bucket == nil {
		return nil
	}
	return errors.Join(s.sweepUploads(ctx), s.expire(ctx), s.removeUnheld(ctx), s.lookForObjects(ctx))
}

// StoredBytes is the size of all assets in the database.
func (s *Service) StoredBytes(ctx context.Context) (n int64, err error) {
	err = s.db.QueryRow(ctx, `SELECT CAST(COALESCE(SUM(size_bytes), 0) AS BIGINT) FROM assets WHERE given_up_at IS NULL`).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("add up assets: %w", err)
	}
	return n, nil
}

// expire ends the holds that were not used for the lifetime of assets.
func (s *Service) expire(ctx context.Context) error {
	if s.lifetime <= 0 {
		return nil
	}
	if _, err := s.db.Exec(ctx, `DELETE FROM asset_holders WHERE last_used_at < now_ms() - $1`, s.lifetime.Milliseconds()); err != nil {
		return fmt.Errorf("expire assets: %w", err)
	}
	return nil
}

// unheld is the condition that nobody holds the asset in the row a.
var unheld = `NOT EXISTS (SELECT 1 FROM asset_holders o WHERE o.asset_key = a.asset_key) AND NOT ` + job.Held("a.asset_key")

// due is the condition that the sweep must delete the object in the row a: at once, again
// in the next hour, because an upload may just have ended, and a last time when no upload
// can still end.
const due = `(a.removing_at IS NULL OR a.removing_at < now_ms() - $1)
	AND (a.given_up_at IS NULL OR a.given_up_at > now_ms() - 3600000 OR a.given_up_at < now_ms() - $2)`

func (s *Service) removeUnheld(ctx context.Context) error {
	keys, err := db.Texts(s.db.Query(ctx, `SELECT a.asset_key FROM assets a WHERE `+due+` AND `+unheld+` LIMIT $3`,
		2*removalTimeout.Milliseconds(), lateUpload.Milliseconds(), sweepBatch))
	if err != nil {
		return fmt.Errorf("look for assets that nobody holds: %w", err)
	}
	return objectstore.Each(parallelCalls, keys, func(key string) error { return s.remove(ctx, key) })
}

// remove deletes the object of an asset, unless a user holds it now. Until the deletion has
// ended, the mark in its row keeps requests from using the object.
func (s *Service) remove(ctx context.Context, key string) error {
	var final bool
	var removals int64
	err := s.db.InTx(ctx, func(tx *db.Tx) error {
		// Hold locks the row first, so the second statement sees every hold that was
		// written before this lock.
		if err := tx.QueryRow(ctx, `SELECT given_up_at IS NOT NULL AND given_up_at < now_ms() - $2 FROM assets
			WHERE asset_key = $1`+tx.ForUpdate(),
			key, lateUpload.Milliseconds()).Scan(&final); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `UPDATE assets AS a SET removing_at = now_ms(), given_up_at = COALESCE(given_up_at, now_ms()),
			removals = removals + 1, seen_at = NULL, verified = NULL WHERE a.asset_key = $1 AND `+unheld+` RETURNING removals`, key).Scan(&removals)
	})
	if db.IsNoRows(err) {
		return nil // it is held again
	}
	if err != nil {
		return fmt.Errorf("mark asset for removal: %w", err)
	}
	k, err := ParseKey(key)
	if err != nil {
		return err
	}
	call, cancel := context.WithTimeout(ctx, removalTimeout)
	defer cancel()
	// If the same bytes are held under another extension, the analysis is made again.
	if err := s.bucket.Delete(call, key, k.AnalysisKey()); err != nil {
		return fmt.Errorf("remove asset: %w", err)
	}
	if err := s.cache.Drop(k.fileName()); err != nil {
		return err
	}
	done := `UPDATE assets SET removing_at = NULL WHERE asset_key = $1 AND removals = $2`
	if final {
		done = `DELETE FROM assets WHERE asset_key = $1 AND removals = $2 AND given_up_at IS NOT NULL`
	}
	if _, err := s.db.Exec(ctx, done, key, removals); err != nil {
		return fmt.Errorf("note the removal of an asset: %w", err)
	}
	return nil
}

// lookForObjects looks for objects that were not seen for a day, and ends the holds of
// missing ones.
func (s *Service) lookForObjects(ctx context.Context) error {
	keys, err := db.Texts(s.db.Query(ctx, `SELECT a.asset_key FROM assets a WHERE COALESCE(a.seen_at, 0) < now_ms() - $1
		AND a.given_up_at IS NULL
		AND NOT EXISTS (SELECT 1 FROM asset_holders o WHERE o.asset_key = a.asset_key AND o.last_used_at > now_ms() - $1)
		ORDER BY COALESCE(a.seen_at, 0) LIMIT $2`, sightEvery.Milliseconds(), sweepBatch))
	if err != nil {
		return fmt.Errorf("look for assets: %w", err)
	}
	return objectstore.Each(parallelCalls, keys, func(key string) error { return s.lookFor(ctx, key) })
}

func (s *Service) lookFor(ctx context.Context, key string) error {
	info, err := s.bucket.Stat(ctx, key)
	if err == nil {
		_, err = s.db.Exec(ctx, `UPDATE assets SET seen_at = now_ms(), size_bytes = $2, content_type = $3 WHERE asset_key = $1`,
			key, info.SizeBytes, info.ContentType)
	} else if missing(err) {
		// A hold of the last day may belong to an upload in progress. Removing the unheld
		// asset deletes the row.
		_, err = s.db.Exec(ctx, `DELETE FROM asset_holders WHERE asset_key = $1 AND last_used_at < now_ms() - $2`, key, sightEvery.Milliseconds())
	}
	if err != nil {
		return fmt.Errorf("look for asset: %w", err)
	}
	return nil
}
