package asset

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"cutroom/internal/db"
	"cutroom/internal/fault"
	"cutroom/internal/objectstore"
	"cutroom/internal/user"
)

const (
	// singleMaxBytes is up to where a file is uploaded in one piece.
	singleMaxBytes = 16 << 20
	// minPartBytes is what a broken connection costs at most to send again. Parts
	// of larger files are larger, so that no answer holds more than maxParts URLs.
	minPartBytes = 8 << 20
	maxParts     = 128
	// uploadLifetime is how long after its beginning an upload may be completed.
	// The bucket's lifecycle rule gives it up as well.
	uploadLifetime = 24 * time.Hour
)

// errNoUpload answers an upload that is not there, or another user's.
var errNoUpload = fault.NotFoundf("no such upload; ask for its addresses again")

// errMismatch answers an upload of other bytes than were announced.
var errMismatch = fault.Invalidf("what was uploaded does not hash to sha256Hex; upload the file again")

// Part is a part of an upload.
type Part struct {
	Number    int // 1 is the first
	URL       string
	SizeBytes int64
	// Done says that the store has it. A store may take half of what a lost
	// connection brought for the whole, so it can be sent again.
	Done bool
}

// pending is an upload in parts that was begun. Which parts have come, only the
// store knows.
type pending struct {
	id, storeID string
	key         Key
	sizeBytes   int64
	completed   bool
}

func partBytes(sizeBytes int64) int64 {
	n := int64(minPartBytes)
	for n*maxParts < sizeBytes {
		n *= 2
	}
	return n
}

// parts are the parts of the upload, of which the store has some. One of another
// size has not come.
func (p pending) parts(stored map[int]objectstore.Part) []Part {
	size := partBytes(p.sizeBytes)
	var list []Part
	for at := int64(0); at < p.sizeBytes; at += size {
		part := Part{Number: len(list) + 1, SizeBytes: min(size, p.sizeBytes-at)}
		part.Done = stored[part.Number].SizeBytes == part.SizeBytes
		list = append(list, part)
	}
	return list
}

// uploadInParts presigns the parts of the user's upload of a file, which goes on
// where it was interrupted.
func (s *Service) uploadInParts(ctx context.Context, r Request, key Key, contentType string) (Upload, error) {
	for range 3 { // one that is found may just have ended
		p, err := s.findOrBegin(ctx, r, key, contentType)
		if err != nil {
			return Upload{}, err
		}
		var stored map[int]objectstore.Part
		if !p.completed {
			stored, err = s.bucket.UploadParts(ctx, key.String(), p.storeID)
		}
		if p.completed || errors.Is(err, objectstore.ErrNoUpload) {
			// Its object has gone since, or the store gave it up.
			if err := s.forget(ctx, p); err != nil {
				return Upload{}, err
			}
			continue
		}
		if err != nil {
			return Upload{}, fmt.Errorf("look for parts: %w", err)
		}
		up := Upload{Key: key.String(), Expires: UploadLifetime, ID: p.id, PartSizeBytes: partBytes(p.sizeBytes), Parts: p.parts(stored)}
		for i := range up.Parts {
			part := &up.Parts[i]
			if part.URL, err = s.bucket.PresignPart(ctx, up.Key, p.storeID, part.Number, part.SizeBytes, UploadLifetime); err != nil {
				return Upload{}, err
			}
		}
		return up, nil
	}
	return Upload{}, errors.New("uploads in parts end as fast as they begin")
}

// maxPending bounds the uploads in parts that a user may have under way.
const maxPending = 64

var errTooManyUploads = &fault.Error{Kind: fault.RateLimited, Code: "rate_limited", RetryAfter: time.Minute,
	Detail: fmt.Sprintf("%d uploads in parts are under way; complete some first", maxPending)}

// findOrBegin returns the user's upload of a file, of which there is one.
func (s *Service) findOrBegin(ctx context.Context, r Request, key Key, contentType string) (pending, error) {
	const same = `user_id = $1 AND asset_key = $2 AND size_bytes = $3`
	p, err := s.findUpload(ctx, same, r.UserID, key.String(), r.SizeBytes)
	if !db.IsNoRows(err) {
		return p, err
	}
	storeID, err := s.bucket.CreateUpload(ctx, key.String(), contentType)
	if err != nil {
		return pending{}, err
	}
	var n int64
	err = s.db.InTx(ctx, func(tx *db.Tx) error {
		if err := user.Lock(ctx, tx, r.UserID); err != nil {
			return err
		}
		var under int
		if err := tx.QueryRow(ctx, `SELECT COUNT(*) FROM asset_uploads WHERE user_id = $1 AND completed_at IS NULL`,
			r.UserID).Scan(&under); err != nil {
			return err
		}
		if under >= maxPending {
			return errTooManyUploads
		}
		n, err = tx.Exec(ctx, `INSERT INTO asset_uploads (id, user_id, asset_key, size_bytes, store_id, created_at)
			VALUES ($1, $2, $3, $4, $5, now_ms()) ON CONFLICT (user_id, asset_key, size_bytes) DO NOTHING`,
			uuid.NewString(), r.UserID, key.String(), r.SizeBytes, storeID)
		return err
	})
	if err != nil || n == 0 { // another request of the user was first
		if aerr := s.bucket.AbortUpload(ctx, key.String(), storeID); err == nil {
			err = aerr
		}
	}
	if err != nil {
		return pending{}, fmt.Errorf("begin upload: %w", err)
	}
	return s.findUpload(ctx, same, r.UserID, key.String(), r.SizeBytes)
}

// findUpload returns the upload that a condition is true of, or an error that is
// db.IsNoRows.
func (s *Service) findUpload(ctx context.Context, where string, args ...any) (pending, error) {
	p, err := scanPending(s.db.QueryRow(ctx, selectPending+where, args...))
	if err != nil {
		return pending{}, fmt.Errorf("look for upload: %w", err)
	}
	return p, nil
}

const selectPending = `SELECT id, asset_key, size_bytes, store_id, completed_at IS NOT NULL FROM asset_uploads WHERE `

func scanPending(row db.Scanner) (p pending, err error) {
	var key string
	if err = row.Scan(&p.id, &key, &p.sizeBytes, &p.storeID, &p.completed); err == nil {
		p.key, err = ParseKey(key)
	}
	return p, err
}

func (s *Service) forget(ctx context.Context, p pending) error {
	if _, err := s.db.Exec(ctx, `DELETE FROM asset_uploads WHERE id = $1`, p.id); err != nil {
		return fmt.Errorf("forget upload: %w", err)
	}
	return nil
}

// Complete makes an object of the parts of an upload that the user began, and
// reads it: bytes that do not hash to the key are refused and removed. A repeat
// is answered as the first time.
func (s *Service) Complete(ctx context.Context, userID, uploadID string) (Upload, error) {
	if s.bucket == nil {
		return Upload{}, ErrDisabled
	}
	if uuid.Validate(uploadID) != nil {
		return Upload{}, errNoUpload
	}
	p, err := s.findUpload(ctx, `id = $1 AND user_id = $2`, uploadID, userID)
	switch {
	case db.IsNoRows(err):
		return Upload{}, errNoUpload
	case err != nil:
		return Upload{}, err
	case !p.completed:
		if err := goOn(ctx, func(ctx context.Context) error { return s.complete(ctx, p) }); err != nil {
			return Upload{}, err
		}
	}
	return Upload{Key: p.key.String(), AlreadyExists: true}, nil
}

// complete is safe to repeat after an interruption anywhere in it. An object
// under the key, of this upload or not, is looked at first: an intact one is
// replaced by nobody.
func (s *Service) complete(ctx context.Context, p pending) error {
	size, err := s.look(ctx, p.key)
	there := err == nil
	if errors.Is(err, objectstore.ErrNotFound) {
		if err := s.assemble(ctx, p); err != nil {
			return err
		}
		size, err = s.look(ctx, p.key)
	}
	switch {
	case errors.Is(err, objectstore.ErrNotFound), err == nil && size != p.sizeBytes:
		if err := s.abandon(ctx, p); err != nil {
			return err
		}
		if err != nil && !errors.Is(err, ErrCorrupt) {
			return errNoUpload // it was given up meanwhile
		}
		return errMismatch.WithCause(err)
	case err != nil:
		return fmt.Errorf("look at asset: %w", err)
	}
	if _, err := s.db.Exec(ctx, `UPDATE asset_uploads SET completed_at = now_ms() WHERE id = $1`, p.id); err != nil {
		return fmt.Errorf("complete upload: %w", err)
	}
	if there {
		return s.bucket.AbortUpload(ctx, p.key.String(), p.storeID)
	}
	return nil
}

// assemble puts the parts together, where all of them have come. Without an error
// somebody else may have been first, or the upload is over: the next look decides.
func (s *Service) assemble(ctx context.Context, p pending) error {
	stored, err := s.bucket.UploadParts(ctx, p.key.String(), p.storeID)
	switch {
	case errors.Is(err, objectstore.ErrNoUpload):
		return nil
	case err != nil:
		return fmt.Errorf("look for parts: %w", err)
	}
	var parts []objectstore.Part
	var lacking []string
	for _, part := range p.parts(stored) {
		if part.Done {
			parts = append(parts, stored[part.Number])
		} else {
			lacking = append(lacking, fmt.Sprint(part.Number))
		}
	}
	if len(lacking) > 0 {
		return fault.Invalidf("parts are missing: %s", strings.Join(lacking, ", "))
	}
	// A copy of a former object says nothing of the bytes of this one.
	if err := s.cache.Drop(p.key.fileName()); err != nil {
		return err
	}
	err = s.bucket.CompleteUpload(ctx, p.key.String(), p.storeID, parts)
	switch {
	case errors.Is(err, objectstore.ErrExists), errors.Is(err, objectstore.ErrNoUpload):
		return nil
	case errors.Is(err, objectstore.ErrChanged):
		return errVerifying.WithCause(err)
	case err != nil:
		return fmt.Errorf("complete upload: %w", err)
	}
	return nil
}

// abandon gives up an upload with its parts; the object of one that was completed stays.
func (s *Service) abandon(ctx context.Context, p pending) error {
	if !p.completed {
		if err := s.bucket.AbortUpload(ctx, p.key.String(), p.storeID); err != nil {
			return err
		}
	}
	return s.forget(ctx, p)
}

// sweepUploads gives up the uploads whose time is over.
func (s *Service) sweepUploads(ctx context.Context) error {
	return s.abandonAll(ctx, `created_at < now_ms() - $1`, uploadLifetime.Milliseconds())
}

func (s *Service) abandonAll(ctx context.Context, where string, args ...any) error {
	if s.bucket == nil {
		return nil
	}
	uploads, err := db.All(ctx, s.db, scanPending, selectPending+where, args...)
	if err != nil {
		return fmt.Errorf("list uploads: %w", err)
	}
	return each(uploads, func(p pending) error { return s.abandon(ctx, p) }) // another replica may do so, too
}
