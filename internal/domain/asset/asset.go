// Package asset owns content-addressed objects: media that clients upload straight to the bucket and name by the hash
// of its bytes.
//
// A key is assets/<sha256>.<ext>. Because the key is the hash, one object can serve everybody who has its bytes, an
// upload can be skipped when the object is there, and a fetched copy that does not hash to its key is refused.
package asset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/storage/diskcache"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/work/derived"
	"cutroom/internal/work/quota"
	"cutroom/internal/work/ratelimit"
)

const (
	// urlLifetime is how long a presigned upload URL works.
	urlLifetime = 300 * time.Second
	// maxContentTypeBytes is more than any media type needs.
	maxContentTypeBytes = 255
)

// ErrDisabled is the answer to a request that needs a bucket if none is configured.
var ErrDisabled = fault.New(fault.Unavailable, "r2_disabled")

// ErrCorrupt reports an object whose bytes do not hash to its key.
var ErrCorrupt = errors.New("asset does not match its key")

// errVerifying is the answer while a stored object is verified. If it turns out to be corrupt, the client has to upload
// it again.
var errVerifying = fault.Sentencef(fault.Unavailable, "the file under this hash is being checked, try again later")

// Options configures a Service.
type Options struct {
	DB *db.DB
	// Bucket keeps the objects; nil disables the Service, and Cache is unused.
	Bucket *objectstore.Bucket
	Cache  *diskcache.Cache // of verified files, by <sha256>.<ext>
	// Verifier verifies uploaded objects, each of which may take longer than its request.
	Verifier *derived.Maker
	MaxBytes int64 // of one asset
	// MaxPerAccount is how many assets an account may have; 0 means no limit.
	MaxPerAccount int64
	SignedURLLife time.Duration // of a download's address
	Quota         *quota.Limits
}

// Service manages the assets in the bucket. It is safe for concurrent use.
type Service struct {
	Options
	// Requests have their own download slots, so that they keep no job waiting.
	jobDownloads, requestDownloads *semaphore.Weighted
}

// New returns a Service.
func New(o Options) *Service {
	return &Service{o, semaphore.NewWeighted(maxDownloads), semaphore.NewWeighted(maxDownloads)}
}

// Enabled reports whether there is a bucket.
func (s *Service) Enabled() bool { return s.Bucket != nil }

// Request describes a file that a client wants to upload.
type Request struct {
	SHA256Hex   string // 64 lower-case hex characters
	SizeBytes   int64
	Ext         string // of any case, without a dot
	ContentType string // media type, which the upload must then use exactly
	// Multipart asks for an upload in parts, which may be interrupted.
	Multipart bool
	UserID    string // who uploads
}

// Upload says whether and where to upload a file.
type Upload struct {
	Key           Key
	AlreadyExists bool
	URL           string        // for one exact PUT; "" when the object exists, or takes parts
	Expires       time.Duration // of the URLs; 0 when the object exists
	// For an upload in parts: its id, the size of all parts but the last, and its parts.
	ID            string
	PartSizeBytes int64
	Parts         []Part
}

// UploadURL presigns an upload that binds the declared type, size and, where the store reads it, hash. If an object of
// that size is there already, nothing has to be uploaded. Either way the user becomes a holder of the asset. A large
// file is uploaded in parts if the client asks for it. A field that breaks a rule is a fault.Invalid that names it.
func (s *Service) UploadURL(ctx context.Context, r Request) (Upload, error) {
	key, err := s.validate(&r)
	if err != nil {
		return Upload{}, err
	}
	for range 3 {
		up, err := s.offer(ctx, r, key)
		if !errors.Is(err, errRemoved) {
			return up, err
		}
	}
	return Upload{}, errRemoving
}

// offer returns errRemoved if the sweep removed the object in the meantime.
func (s *Service) offer(ctx context.Context, r Request, key Key) (Upload, error) {
	found, err := s.Find(ctx, key)
	intact := false
	switch {
	case err == nil && found.SizeBytes == r.SizeBytes:
		return Upload{Key: key, AlreadyExists: true}, s.holdInTx(ctx, r.UserID, found)
	case err == nil:
		if intact, err = s.isIntact(ctx, found, r); err != nil {
			return Upload{}, err
		}
	case !missing(err):
		return Upload{}, err
	}
	if !intact { // if it is intact, no file can have both this hash and the declared size
		announced := Found{Key: key, SizeBytes: r.SizeBytes, contentType: r.ContentType, announced: true}
		if err := s.holdInTx(ctx, r.UserID, announced); err != nil {
			return Upload{}, err
		}
	}
	if r.Multipart && r.SizeBytes > singleMaxBytes && !intact {
		up, err := s.uploadInParts(ctx, r, key)
		if !errors.Is(err, objectstore.ErrUnsupported) {
			return up, err
		}
	}
	return s.presign(ctx, r, key, intact)
}

// presign allows one exact PUT. It may replace an existing object, unless that is intact.
func (s *Service) presign(ctx context.Context, r Request, key Key, intact bool) (Upload, error) {
	var sum [sha256.Size]byte
	if _, err := hex.Decode(sum[:], []byte(r.SHA256Hex)); err != nil {
		return Upload{}, fmt.Errorf("presign upload: %w", err)
	}
	url, err := s.Bucket.PresignPut(ctx, key.String(), r.ContentType, r.SizeBytes, sum, urlLifetime, intact)
	if err != nil {
		return Upload{}, fmt.Errorf("presign upload: %w", err)
	}
	return Upload{Key: key, URL: url, Expires: urlLifetime}, nil
}

// verifyLimit bounds how often one user can make us read an object.
var verifyLimit = ratelimit.Limit{Name: "verify", PerMinute: 10}

// isIntact verifies the object under a key when a client declares another size. Either the object or the client is
// wrong, and only the bytes show which: a wrong client must not get a URL that replaces an intact object. Each object
// is read once.
func (s *Service) isIntact(ctx context.Context, found Found, r Request) (bool, error) {
	if found.hashVerified {
		return true, nil
	}
	if err := verifyLimit.Take(ctx, s.DB, "user:"+r.UserID); err != nil {
		return false, err
	}
	size, err := verify(ctx, s, r.UserID, found.Key.String(), func(ctx context.Context) (int64, error) {
		return s.verifiedSize(ctx, found.Key)
	})
	switch {
	case missing(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look at asset: %w", err)
	}
	return size != r.SizeBytes, nil
}

// verifiedSize reads the object under a key, unless it is cached, and returns its size. It removes an object that does
// not match its key and reports it as not found.
func (s *Service) verifiedSize(ctx context.Context, key Key) (sizeBytes int64, err error) {
	if _, err := s.Bucket.Stat(ctx, key.String()); err != nil {
		return 0, err
	}
	sizeBytes, err = s.Cache.Size(ctx, key.fileName(), func(ctx context.Context, path string) error { return s.download(ctx, key, path) })
	if errors.Is(err, ErrCorrupt) {
		return 0, fmt.Errorf("%w: %w", objectstore.ErrNotFound, err)
	}
	return sizeBytes, err
}

// verify waits for do as long as a request may. If do takes longer, a repeated request joins it or finds it finished.
func verify[T any](ctx context.Context, s *Service, userID, key string, do func(context.Context) (T, error)) (T, error) {
	result, err := derived.Do(ctx, s.Verifier, userID, key, do)
	if errors.Is(err, derived.ErrBusy) {
		err = errVerifying.WithCause(err)
	}
	return result, err
}

// validate returns the key. It removes spaces around the content type, because HTTP drops those of a header's value.
func (s *Service) validate(r *Request) (Key, error) {
	ext := strings.ToLower(r.Ext)
	r.ContentType = strings.TrimSpace(r.ContentType)
	switch {
	case !isHash(r.SHA256Hex):
		return Key{}, fault.Invalidf("sha256Hex must be %d lower-case hex characters", hashChars)
	case r.SizeBytes <= 0:
		return Key{}, fault.Invalidf("sizeBytes must be > 0")
	case r.SizeBytes > s.MaxBytes:
		return Key{}, fault.Invalidf("sizeBytes must be at most %d", s.MaxBytes)
	case !slices.Contains(extensions, ext):
		return Key{}, fault.Invalidf("ext must be one of %s", strings.Join(extensions, ", "))
	case r.ContentType == "":
		return Key{}, fault.Invalidf("contentType must not be blank")
	case len(r.ContentType) > maxContentTypeBytes || strings.ContainsFunc(r.ContentType, func(c rune) bool { return c < ' ' || c > '~' }):
		return Key{}, fault.Invalidf("contentType must be a media type")
	}
	return Key{r.SHA256Hex, ext}, nil
}
