// Uploads in parts: begin or continue one, presign what is missing, complete it, verify the hash of the object, and
// abandon what expires.

package asset

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/work/user"
)

const (
	// singleMaxBytes is the largest file that is uploaded in one piece.
	singleMaxBytes = 16 << 20
	// minPartBytes is the part size of small files, and so what a client repeats after a broken connection. Larger
	// files have larger parts, so that no answer holds more than maxParts URLs.
	minPartBytes = 8 << 20
	maxParts     = 128
	// uploadLifetime is how long after its start an upload may be completed. The bucket's lifecycle rule aborts it
	// after the same time.
	uploadLifetime = 24 * time.Hour
)

// errNoUpload is the answer for an upload that does not exist, or is another user's.
var errNoUpload = fault.NotFoundf("uploadId is unknown or has ended; request its addresses again")

// errMismatch is the answer for an upload whose bytes differ from those declared.
var errMismatch = fault.Invalidf("uploadId: the uploaded bytes do not match sha256Hex; upload the file again")

// Part is a part of an upload.
type Part struct {
	Number    int // 1 is the first
	URL       string
	SizeBytes int64
	// Done says that the store has the part. A client may send it again anyway, because a store may accept a part that
	// a lost connection cut off.
	Done bool
}

// pending is an upload in parts that was begun. Only the store knows which parts have arrived.
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

// parts are the parts of the upload, and which of them the store has. A stored part of the wrong size counts as
// missing.
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

// uploadInParts presigns the parts of the user's upload of a file. An interrupted upload continues.
func (s *Service) uploadInParts(ctx context.Context, r Request, key Key) (Upload, error) {
	for range 3 { // an upload that was found may just have ended
		p, err := s.findOrBegin(ctx, r, key)
		if err != nil {
			return Upload{}, err
		}
		var stored map[int]objectstore.Part
		if !p.completed {
			stored, err = s.Bucket.UploadParts(ctx, key.String(), p.storeID)
		}
		if p.completed || errors.Is(err, objectstore.ErrNoUpload) {
			// The object has been removed since, or the store has aborted the upload.
			if err := s.abandon(ctx, p); err != nil {
				return Upload{}, err
			}
			continue
		}
		if err != nil {
			return Upload{}, fmt.Errorf("look for parts: %w", err)
		}
		up := Upload{Key: key, Expires: urlLifetime, ID: p.id, PartSizeBytes: partBytes(p.sizeBytes), Parts: p.parts(stored)}
		for i := range up.Parts {
			part := &up.Parts[i]
			if part.URL, err = s.Bucket.PresignPart(ctx, key.String(), p.storeID, part.Number, part.SizeBytes, urlLifetime); err != nil {
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

// findOrBegin returns the user's only upload of a file, and begins it if necessary.
func (s *Service) findOrBegin(ctx context.Context, r Request, key Key) (pending, error) {
	const same = `user_id = $1 AND asset_key = $2 AND size_bytes = $3`
	p, err := s.findUpload(ctx, same, r.UserID, key.String(), r.SizeBytes)
	if !db.IsNoRows(err) {
		return p, err
	}
	storeID, err := s.Bucket.CreateUpload(ctx, key.String(), r.ContentType)
	if err != nil {
		return pending{}, err
	}
	var n int64
	err = s.DB.InTx(ctx, func(tx *db.Tx) error {
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
	if err != nil || n == 0 { // another request of the user won the race
		if aerr := s.Bucket.AbortUpload(ctx, key.String(), storeID); err == nil {
			err = aerr
		}
	}
	if err != nil {
		return pending{}, fmt.Errorf("begin upload: %w", err)
	}
	return s.findUpload(ctx, same, r.UserID, key.String(), r.SizeBytes)
}

// findUpload returns the upload that matches a condition, or an error that is db.IsNoRows.
func (s *Service) findUpload(ctx context.Context, where string, args ...any) (pending, error) {
	p, err := scanPending(s.DB.QueryRow(ctx, selectPending+where, args...))
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

// Complete makes an object from the parts of the user's upload, and verifies it: an object that does not hash to its
// key is refused and removed. A repeat gets the first answer.
func (s *Service) Complete(ctx context.Context, userID, uploadID string) (Upload, error) {
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
		_, err = verify(ctx, s, userID, p.id, func(ctx context.Context) (struct{}, error) { return struct{}{}, s.complete(ctx, p) })
		if err != nil {
			return Upload{}, err
		}
	}
	return Upload{Key: p.key, AlreadyExists: true}, nil
}

// complete is safe to repeat after any interruption. It first verifies an object that already exists under the key,
// from this upload or not, because an intact object must not be replaced.
func (s *Service) complete(ctx context.Context, p pending) error {
	size, err := s.verifiedSize(ctx, p.key)
	there := err == nil
	if errors.Is(err, objectstore.ErrNotFound) {
		if err := s.assemble(ctx, p); err != nil {
			return err
		}
		size, err = s.verifiedSize(ctx, p.key)
	}
	switch {
	case errors.Is(err, objectstore.ErrNotFound), err == nil && size != p.sizeBytes:
		if err := s.abandon(ctx, p); err != nil {
			return err
		}
		if err != nil && !errors.Is(err, ErrCorrupt) {
			return errNoUpload // abandoned in the meantime
		}
		return errMismatch.WithCause(err)
	case err != nil:
		return fmt.Errorf("look at asset: %w", err)
	}
	if _, err := s.DB.Exec(ctx, `UPDATE asset_uploads SET completed_at = now_ms() WHERE id = $1`, p.id); err != nil {
		return fmt.Errorf("complete upload: %w", err)
	}
	if there {
		return s.Bucket.AbortUpload(ctx, p.key.String(), p.storeID)
	}
	return nil
}

// assemble completes the upload at the store if all parts have arrived. It also returns nil if another request
// completed it first or the upload is over; the caller looks again.
func (s *Service) assemble(ctx context.Context, p pending) error {
	stored, err := s.Bucket.UploadParts(ctx, p.key.String(), p.storeID)
	switch {
	case errors.Is(err, objectstore.ErrNoUpload):
		return nil
	case err != nil:
		return fmt.Errorf("look for parts: %w", err)
	}
	var parts []objectstore.Part
	var absent []string
	for _, part := range p.parts(stored) {
		if part.Done {
			parts = append(parts, stored[part.Number])
		} else {
			absent = append(absent, fmt.Sprint(part.Number))
		}
	}
	if len(absent) > 0 {
		return fault.Invalidf("uploadId: these parts are missing: %s", strings.Join(absent, ", "))
	}
	// A cached copy may be of an earlier object.
	if err := s.Cache.Drop(p.key.fileName()); err != nil {
		return err
	}
	err = s.Bucket.CompleteUpload(ctx, p.key.String(), p.storeID, parts)
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

// abandon aborts an upload and removes its parts. The object of a completed upload stays.
func (s *Service) abandon(ctx context.Context, p pending) error {
	if !p.completed {
		if err := s.Bucket.AbortUpload(ctx, p.key.String(), p.storeID); err != nil {
			return err
		}
	}
	if _, err := s.DB.Exec(ctx, `DELETE FROM asset_uploads WHERE id = $1`, p.id); err != nil {
		return fmt.Errorf("forget upload: %w", err)
	}
	return nil
}

// abandonAll abandons the uploads that match a condition. Another replica may do so, too.
func (s *Service) abandonAll(ctx context.Context, where string, args ...any) error {
	if s.Bucket == nil {
		return nil
	}
	uploads, err := db.All(ctx, s.DB, scanPending, selectPending+where, args...)
	if err != nil {
		return fmt.Errorf("list uploads: %w", err)
	}
	return objectstore.Each(parallelCalls, uploads, func(_ int, p pending) error { return s.abandon(ctx, p) })
}
