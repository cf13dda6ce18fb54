// Who holds an asset: a row of asset_holders keeps the object from the sweep and counts against the account's limit.
// Requests hold, list, download and give up assets here.

package asset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"cutroom/internal/base/cursor"
	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/work/quota"
	"cutroom/internal/work/user"
)

// removalTimeout bounds the deletion of an object by the sweep. A removal that was marked more than twice as long ago
// has ended, whether it succeeded or not.
const removalTimeout = time.Minute

// errRemoving is the answer for an object that the sweep is deleting.
var errRemoving = &fault.Error{Kind: fault.Unavailable,
	Sentence: "a file with this hash is being removed, try again in a moment", RetryAfter: 5 * time.Second}

// errRemoved reports that the sweep removed an object after it was looked up.
var errRemoved = errors.New("the asset was removed")

// Hold makes a user a holder of the assets that a request uses. It runs in the transaction that accepts the request,
// after [user.Lock]. If the sweep removed an object since it was found, the error is a 404.
func Hold(ctx context.Context, tx *db.Tx, userID string, found ...Found) error {
	found = slices.Clone(found)
	slices.SortFunc(found, func(a, b Found) int { return strings.Compare(a.Key.String(), b.Key.String()) }) // one order of locks
	for _, f := range found {
		err := hold(ctx, tx, userID, f)
		if errors.Is(err, errRemoved) {
			return fault.NotFoundf("the asset %s was removed a moment ago; upload it again", f.Key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func hold(ctx context.Context, tx *db.Tx, userID string, f Found) error {
	var removals, size int64
	var removing bool
	// The row's lock keeps the sweep from removing the object before the holder is written. A file that was announced
	// twice counts with the larger size, because the earlier URL may still accept a file of that size.
	err := tx.QueryRow(ctx, `INSERT INTO assets (asset_key, size_bytes, content_type, seen_at)
		VALUES ($1, $2, $3, CASE WHEN NOT $4 THEN now_ms() END)
		ON CONFLICT (asset_key) DO UPDATE SET content_type = excluded.content_type, seen_at = excluded.seen_at,
			given_up_at = NULL, removal_at = NULL,
			size_bytes = CASE WHEN $4 AND assets.given_up_at IS NULL AND assets.size_bytes > excluded.size_bytes
				THEN assets.size_bytes ELSE excluded.size_bytes END
		RETURNING removals, size_bytes, removing_at IS NOT NULL AND removing_at > now_ms() - $5`,
		f.Key.String(), f.SizeBytes, f.contentType, f.announced, 2*removalTimeout.Milliseconds()).Scan(&removals, &size, &removing)
	switch {
	case err != nil:
		return fmt.Errorf("hold asset: %w", err)
	case removing:
		return errRemoving // the removal would delete a new upload, too
	case removals != f.removals && !f.announced:
		return errRemoved
	}
	_, err = tx.Exec(ctx, `INSERT INTO asset_holders (user_id, asset_key, size_bytes, created_at, last_used_at)
		VALUES ($1, $2, $3, now_ms(), now_ms())
		ON CONFLICT (user_id, asset_key) DO UPDATE SET last_used_at = excluded.last_used_at, given_up_at = NULL`,
		userID, f.Key.String(), size)
	if err != nil {
		return fmt.Errorf("hold asset: %w", err)
	}
	return count(ctx, tx, f.Key, size)
}

// count sets the size that an asset counts for all its holders. The caller's transaction has already written the size
// to assets, which keeps others from writing a different one.
func count(ctx context.Context, tx *db.Tx, key Key, size int64) error {
	_, err := tx.Exec(ctx, `UPDATE asset_holders SET size_bytes = $2 WHERE asset_key = $1 AND size_bytes <> $2`,
		key.String(), size)
	if err != nil {
		return fmt.Errorf("count the size of an asset: %w", err)
	}
	return nil
}

// Holds reports whether a user holds an asset.
func Holds(ctx context.Context, q db.Querier, userID string, key Key) (bool, error) {
	held, err := db.HasRow(ctx, q, `SELECT 1 FROM asset_holders
		WHERE user_id = $1 AND asset_key = $2 AND given_up_at IS NULL`, userID, key.String())
	if err != nil {
		return false, fmt.Errorf("look for holder: %w", err)
	}
	return held, nil
}

// holdInTx is hold in a transaction of its own. It also checks the limits of the account.
func (s *Service) holdInTx(ctx context.Context, userID string, f Found) error {
	return s.DB.InTx(ctx, func(tx *db.Tx) error {
		if err := user.Lock(ctx, tx, userID); err != nil {
			return err
		}
		had, err := Holds(ctx, tx, userID, f.Key)
		if err != nil {
			return err
		}
		if err := hold(ctx, tx, userID, f); err != nil || had && !f.announced {
			return err // an asset that the user holds already takes no more space
		}
		if err := s.checkNumber(ctx, tx, userID); err != nil {
			return err
		}
		return s.Quota.CheckStored(ctx, tx, userID, 0)
	})
}

// checkNumber refuses a hold that was just written if the account now has too many. Assets that the account gave up
// count until they are erased.
func (s *Service) checkNumber(ctx context.Context, tx *db.Tx, userID string) error {
	if s.MaxPerAccount == 0 {
		return nil
	}
	var n int64
	if err := tx.QueryRow(ctx, `SELECT COUNT(*) FROM asset_holders WHERE user_id = $1`, userID).Scan(&n); err != nil {
		return fmt.Errorf("count assets: %w", err)
	}
	if n > s.MaxPerAccount {
		return fault.Invalidf("an account may have at most %d assets; delete some, and try again when they are erased", s.MaxPerAccount)
	}
	return nil
}

// Use finds an asset for a request that reads it at once, and makes its user a holder. The error of a missing object is
// objectstore.ErrNotFound.
func (s *Service) Use(ctx context.Context, userID string, key Key) (Found, error) {
	found, err := s.Find(ctx, key)
	if err == nil {
		err = s.holdInTx(ctx, userID, found)
	}
	if errors.Is(err, errRemoved) {
		err = fmt.Errorf("%w: %w", objectstore.ErrNotFound, err)
	}
	return found, err
}

// StoredBytes is what assets count against an account's limit: the full size for each holder, until an asset that the
// account gave up is erased.
var StoredBytes = quota.Bytes("size_bytes", `asset_holders WHERE user_id = $1`)

// Held is an asset as one of its holders sees it.
type Held struct {
	Key         Key
	SizeBytes   int64
	ContentType string
	Created     time.Time // when the account first asked for its upload or used it
	LastUsed    time.Time
}

// List returns a page of what an account holds, newest first.
func (s *Service) List(ctx context.Context, userID string, p cursor.Page) ([]Held, string, error) {
	page, next, err := cursor.List(ctx, s.DB, `SELECT h.asset_key, a.size_bytes, a.content_type, h.created_at, h.last_used_at
		FROM asset_holders h JOIN assets a ON a.asset_key = h.asset_key
		WHERE h.user_id = $1 AND h.given_up_at IS NULL`+cursor.Newest("h.created_at", "h.asset_key"),
		userID, p, func(row db.Scanner) (h Held, err error) {
			var key string
			var created, used int64
			if err = row.Scan(&key, &h.SizeBytes, &h.ContentType, &created, &used); err == nil {
				h.Key, err = ParseKey(key)
			}
			h.Created, h.LastUsed = db.Time(created), db.Time(used)
			return h, err
		}, func(h Held) cursor.Cursor { return cursor.Cursor{At: h.Created.UnixMilli(), ID: h.Key.String()} }, keyPrefix)
	if err != nil {
		return nil, "", fmt.Errorf("list assets: %w", err)
	}
	return page, next, nil
}

// ErrUnknown is the answer at the address of an asset that does not exist, or that the user does not hold.
var ErrUnknown = fault.NotFoundf("asset not found")

// DownloadURL returns an address of an asset that the user holds. Until the address expires, anyone can read the asset
// from it, or, with head, send it HEAD requests. The error for an asset that the user does not hold and for a missing
// object is ErrUnknown.
func (s *Service) DownloadURL(ctx context.Context, userID string, key Key, head bool) (string, error) {
	if s.Bucket == nil {
		return "", ErrDisabled
	}
	held, err := Holds(ctx, s.DB, userID, key)
	if err != nil {
		return "", err
	}
	if !held {
		return "", ErrUnknown
	}
	info, err := s.Bucket.Stat(ctx, key.String())
	if missing(err) {
		return "", ErrUnknown
	}
	if err != nil {
		return "", fmt.Errorf("look for asset: %w", err)
	}
	return s.Bucket.PresignGet(ctx, key.String(), s.SignedURLLife, key.fileName(), info.ContentType, head)
}

// Release ends the user's hold of an asset and the user's unfinished upload of it. The asset counts for the user until
// the sweep has erased it. It returns nil if the user does not hold the asset.
func (s *Service) Release(ctx context.Context, userID string, key Key) error {
	if err := s.abandonAll(ctx, `user_id = $1 AND asset_key = $2 AND completed_at IS NULL`, userID, key.String()); err != nil {
		return err
	}
	if _, err := s.DB.Exec(ctx, `UPDATE asset_holders SET given_up_at = now_ms()
		WHERE user_id = $1 AND asset_key = $2 AND given_up_at IS NULL`, userID, key.String()); err != nil {
		return fmt.Errorf("release asset: %w", err)
	}
	return nil
}

// Erase ends all holds and unfinished uploads of a user. The next sweep removes objects without another holder.
func (s *Service) Erase(ctx context.Context, userID string) error {
	if err := s.abandonAll(ctx, `user_id = $1`, userID); err != nil {
		return err
	}
	if _, err := s.DB.Exec(ctx, `DELETE FROM asset_holders WHERE user_id = $1`, userID); err != nil {
		return fmt.Errorf("release assets: %w", err)
	}
	return nil
}
