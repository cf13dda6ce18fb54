package render

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/film/media/container"
	"cutroom/internal/storage/staging"
	"cutroom/internal/work/idempotency"
	"cutroom/internal/work/quota"
	"cutroom/internal/work/user"
)

// Input is a cached video of one user.
type Input struct {
	ID        string // the first 16 characters of the content's SHA-256
	Expires   time.Time
	SizeBytes int64
}

// inputIDLength is how much of the digest names an input.
const inputIDLength = 16

// InputBytes is what cached videos count against the limit of the account $1.
var InputBytes = quota.Bytes("size_bytes", `render_inputs WHERE user_id = $1`)

// SaveInput caches a video for later renders of its owner. Saving the same bytes again renews the entry, unless the
// idempotency key already has an answer. The caller keeps the staged file.
func (s *Service) SaveInput(ctx context.Context, owner string, file staging.File, key idempotency.Key) (Input, error) {
	in := Input{ID: file.SHA256[:inputIDLength], SizeBytes: file.SizeBytes}
	known, err := idempotency.Find(ctx, s.DB, key)
	if err != nil || known != "" {
		return in.expiring(known, err)
	}
	if file.SizeBytes == 0 {
		return Input{}, fault.Invalidf("video is empty")
	}
	class, err := container.SniffFile(file.Path)
	if err != nil {
		return Input{}, fmt.Errorf("classify upload: %w", err)
	}
	if !class.Kind.MayHoldVideo() {
		return Input{}, fault.Invalidf("video is not a video file of a supported format")
	}
	object := inputKey(owner, file.SHA256)
	if err := s.roomForInput(ctx, s.DB, owner, in); err != nil {
		return Input{}, err
	}
	if err := s.Store.Put(ctx, object, file.Path, "application/octet-stream"); err != nil {
		return Input{}, fmt.Errorf("store input: %w", err)
	}
	answer, _, err := idempotency.Once(ctx, s.DB, key, func(tx *db.Tx) (string, error) {
		if err := user.Lock(ctx, tx, owner); err != nil {
			return "", err
		}
		if err := s.roomForInput(ctx, tx, owner, in); err != nil {
			return "", err
		}
		var usedMs int64
		err := tx.QueryRow(ctx, `INSERT INTO render_inputs (user_id, input_id, sha256, object_key, size_bytes, last_used_at)
			VALUES ($1, $2, $3, $4, $5, now_ms())
			ON CONFLICT (user_id, input_id) DO UPDATE SET sha256 = excluded.sha256, object_key = excluded.object_key,
				size_bytes = excluded.size_bytes, last_used_at = excluded.last_used_at
			RETURNING last_used_at`, owner, in.ID, file.SHA256, object, file.SizeBytes).Scan(&usedMs)
		return strconv.FormatInt(usedMs+s.InputLifetime.Milliseconds(), 10), err
	})
	if errors.Is(err, user.ErrDeleted) {
		// A deletion that began during the upload may have looked for files before this one was there.
		return Input{}, errors.Join(err, s.Store.Delete(context.WithoutCancel(ctx), object))
	}
	if fault.As(err) != nil {
		return Input{}, errors.Join(err, s.Sweeper.Remove(context.WithoutCancel(ctx), kindInputs, object))
	}
	if err != nil {
		return Input{}, fmt.Errorf("record input: %w", err)
	}
	// A sweep of the expired entry may have removed the object between the two writes; the row is fresh now, so it will
	// not do so again.
	if _, err := s.Store.Stat(ctx, object); err != nil {
		if err := s.Store.Put(ctx, object, file.Path, "application/octet-stream"); err != nil {
			return Input{}, fmt.Errorf("store input: %w", err)
		}
	}
	return in.expiring(answer, nil)
}

// expiring completes an input with the answer that the idempotency key remembers: when the input expires, in epoch ms.
func (in Input) expiring(answer string, err error) (Input, error) {
	if err != nil {
		return Input{}, err
	}
	ms, err := strconv.ParseInt(answer, 10, 64)
	in.Expires = time.UnixMilli(ms)
	return in, err
}

// roomForInput refuses an input that would exceed the account's space. An input that is already cached takes no
// additional space.
func (s *Service) roomForInput(ctx context.Context, q db.Querier, owner string, in Input) error {
	cached, err := db.HasRow(ctx, q, `SELECT 1 FROM render_inputs WHERE user_id = $1 AND input_id = $2 AND size_bytes >= $3`,
		owner, in.ID, in.SizeBytes)
	if err != nil {
		return fmt.Errorf("look for cached input: %w", err)
	}
	if cached {
		return nil
	}
	return s.Quota.CheckStored(ctx, q, owner, in.SizeBytes)
}
