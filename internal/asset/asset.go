// Package asset owns content-addressed objects: media that clients upload
// straight to the bucket and name by the hash of its bytes.
//
// A key is assets/<sha256>.<ext>. Because the key is the hash, one object can
// serve everybody who has its bytes, an upload can be skipped when the object
// is there, and a fetched copy that does not hash to its key is refused.
package asset

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"cutroom/internal/fault"
	"cutroom/internal/objectstore"
)

// UploadLifetime is how long a presigned upload URL works.
const UploadLifetime = 300 * time.Second

// ErrDisabled answers everything that needs a bucket where none is configured.
var ErrDisabled = fault.New(fault.Unavailable, "r2_disabled")

// ErrCorrupt reports an object whose bytes do not hash to its key.
var ErrCorrupt = errors.New("asset does not match its key")

// Key is a parsed asset key.
type Key struct {
	SHA256 string // 64 lower-case hex characters
	Ext    string // lower case, without a dot
}

// String is the key's form in the bucket.
func (k Key) String() string { return "assets/" + k.SHA256 + "." + k.Ext }

var (
	hexHash    = regexp.MustCompile(`^[0-9a-f]{64}$`)
	extensions = map[string]bool{"mp4": true, "mov": true, "m4v": true, "webm": true, "m4a": true, "mp3": true, "wav": true, "aac": true}
)

// ParseKey parses a key that a client sent.
func ParseKey(s string) (Key, error) {
	rest, ok := strings.CutPrefix(s, "assets/")
	if !ok {
		return Key{}, errors.New("asset key: not under assets/")
	}
	hash, ext, ok := strings.Cut(rest, ".")
	if !ok || !hexHash.MatchString(hash) || !extensions[ext] {
		return Key{}, errors.New("asset key: not <sha256>.<ext>")
	}
	return Key{hash, ext}, nil
}

// Service is the asset room. It is safe for concurrent use.
type Service struct {
	bucket   *objectstore.Bucket
	cache    *Cache
	maxBytes int64
}

// New returns a Service. A nil bucket disables it; then the cache is unused.
func New(bucket *objectstore.Bucket, cache *Cache, maxBytes int64) *Service {
	return &Service{bucket: bucket, cache: cache, maxBytes: maxBytes}
}

// Enabled reports whether there is a bucket.
func (s *Service) Enabled() bool { return s.bucket != nil }

// Request asks for a place to upload an object to.
type Request struct {
	SHA256Hex   string
	SizeBytes   int64
	Ext         string
	ContentType string
}

// Upload is where and whether to upload.
type Upload struct {
	Key           string
	AlreadyExists bool
	URL           string        // "" when the object exists
	Expires       time.Duration // 0 when the object exists
}

// UploadURL presigns an upload that binds the declared type and size, unless
// the object is there already.
func (s *Service) UploadURL(ctx context.Context, r Request) (Upload, error) {
	if s.bucket == nil {
		return Upload{}, ErrDisabled
	}
	ext := strings.ToLower(strings.TrimSpace(r.Ext))
	switch {
	case !hexHash.MatchString(r.SHA256Hex):
		return Upload{}, fault.Invalidf("sha256Hex must be 64 lower-case hex characters")
	case r.SizeBytes <= 0:
		return Upload{}, fault.Invalidf("sizeBytes must be > 0")
	case r.SizeBytes > s.maxBytes:
		return Upload{}, fault.Invalidf("sizeBytes must be at most %d", s.maxBytes)
	case !extensions[ext]:
		return Upload{}, fault.Invalidf("ext must be one of mp4, mov, m4v, webm, m4a, mp3, wav, aac")
	case strings.TrimSpace(r.ContentType) == "":
		return Upload{}, fault.Invalidf("contentType is required")
	case len(r.ContentType) > 255 || strings.ContainsFunc(r.ContentType, func(c rune) bool { return c < ' ' || c > '~' }):
		return Upload{}, fault.Invalidf("contentType must be a media type")
	}
	key := Key{r.SHA256Hex, ext}.String()
	_, err := s.bucket.Stat(ctx, key)
	if err == nil {
		return Upload{Key: key, AlreadyExists: true}, nil
	}
	if !errors.Is(err, objectstore.ErrNotFound) {
		return Upload{}, fmt.Errorf("look for asset: %w", err)
	}
	url, err := s.bucket.PresignPut(ctx, key, strings.TrimSpace(r.ContentType), r.SizeBytes, UploadLifetime)
	if err != nil {
		return Upload{}, fmt.Errorf("presign upload: %w", err)
	}
	return Upload{Key: key, URL: url, Expires: UploadLifetime}, nil
}

// Lookup parses a key and checks that its object is there; a missing one is
// objectstore.ErrNotFound, a malformed key invalid_asset_key.
func (s *Service) Lookup(ctx context.Context, key string) (Key, error) {
	if s.bucket == nil {
		return Key{}, ErrDisabled
	}
	k, err := ParseKey(key)
	if err != nil {
		return Key{}, fault.New(fault.Invalid, "invalid_asset_key").Because(err)
	}
	if _, err := s.bucket.Stat(ctx, key); err != nil {
		return Key{}, fmt.Errorf("look for asset: %w", err)
	}
	return k, nil
}

// FetchTo brings the object to a local file that the caller owns, through the
// cache. Bytes that do not hash to the key are ErrCorrupt.
func (s *Service) FetchTo(ctx context.Context, key, dst string) error {
	if s.bucket == nil {
		return ErrDisabled
	}
	k, err := ParseKey(key)
	if err != nil {
		return err
	}
	return s.cache.fetch(ctx, s.bucket, k, dst)
}
