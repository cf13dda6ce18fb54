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
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"cutroom/internal/fault"
	"cutroom/internal/objectstore"
)

const (
	// UploadLifetime is how long a presigned upload URL works.
	UploadLifetime = 300 * time.Second
	// parallelLookups bounds the questions that one Check asks the bucket at
	// a time.
	parallelLookups = 8
	// maxContentTypeBytes is more than any media type needs.
	maxContentTypeBytes = 255
)

// ErrDisabled answers everything that needs a bucket where none is configured.
var ErrDisabled = fault.New(fault.Unavailable, "r2_disabled")

// ErrInvalidKey answers a key that ParseKey refuses.
var ErrInvalidKey = fault.New(fault.Invalid, "invalid_asset_key")

// ErrCorrupt reports an object whose bytes do not hash to its key.
var ErrCorrupt = errors.New("asset does not match its key")

// errStoreDown is what a client sees while the bucket is out of reach.
var errStoreDown = fault.New(fault.Unavailable, "asset storage is unavailable, try again later")

// Service is the asset room. It is safe for concurrent use.
type Service struct {
	bucket   *objectstore.Bucket
	cache    *Cache
	maxBytes int64
}

// New returns a Service whose assets are at most maxBytes long. A nil bucket
// disables it; then the cache is unused.
func New(bucket *objectstore.Bucket, cache *Cache, maxBytes int64) *Service {
	return &Service{bucket: bucket, cache: cache, maxBytes: maxBytes}
}

// Enabled reports whether there is a bucket.
func (s *Service) Enabled() bool { return s.bucket != nil }

// Request describes a file that a client wants to upload.
type Request struct {
	SHA256Hex   string // 64 lower-case hex characters
	SizeBytes   int64
	Ext         string // of any case, without a dot
	ContentType string // media type, which the upload must then use exactly
}

// Upload is where and whether to upload.
type Upload struct {
	Key           string
	AlreadyExists bool
	URL           string        // for one exact PUT; "" when the object exists
	Expires       time.Duration // of the URL; 0 when the object exists
}

// UploadURL presigns an upload that binds the declared type and size, unless
// the object is there already. A field that breaks a rule is a fault.Invalid
// that names it.
func (s *Service) UploadURL(ctx context.Context, r Request) (Upload, error) {
	if s.bucket == nil {
		return Upload{}, ErrDisabled
	}
	key, contentType, err := s.validate(r)
	if err != nil {
		return Upload{}, err
	}
	// The size of an existing object is not compared: whichever of the two
	// claims is wrong, only the bytes can tell, and FetchTo looks at them.
	_, err = s.bucket.Stat(ctx, key)
	if err == nil {
		return Upload{Key: key, AlreadyExists: true}, nil
	}
	if !errors.Is(err, objectstore.ErrNotFound) {
		return Upload{}, storeFault("look for asset", err)
	}
	url, err := s.bucket.PresignPut(ctx, key, contentType, r.SizeBytes, UploadLifetime)
	if err != nil {
		return Upload{}, fmt.Errorf("presign upload: %w", err)
	}
	return Upload{Key: key, URL: url, Expires: UploadLifetime}, nil
}

// validate returns the key and the content type as it has to be signed.
func (s *Service) validate(r Request) (key, contentType string, err error) {
	ext := strings.ToLower(r.Ext)
	// Spaces around a header's value do not survive the transport.
	contentType = strings.TrimSpace(r.ContentType)
	switch {
	case !isHash(r.SHA256Hex):
		return "", "", fault.Invalidf("sha256Hex must be %d lower-case hex characters", hashChars)
	case r.SizeBytes <= 0:
		return "", "", fault.Invalidf("sizeBytes must be > 0")
	case r.SizeBytes > s.maxBytes:
		return "", "", fault.Invalidf("sizeBytes must be at most %d", s.maxBytes)
	case !slices.Contains(extensions, ext):
		return "", "", fault.Invalidf("ext must be one of %s", strings.Join(extensions, ", "))
	case contentType == "":
		return "", "", fault.Invalidf("contentType must not be blank")
	case len(contentType) > maxContentTypeBytes || strings.ContainsFunc(contentType, func(c rune) bool { return c < ' ' || c > '~' }):
		return "", "", fault.Invalidf("contentType must be a media type")
	}
	return Key{r.SHA256Hex, ext}.String(), contentType, nil
}

// Ref is a key and the request field that holds it.
type Ref struct {
	Field string // such as "segments[1].sourceAssetKey"
	Key   string
}

// Check validates the keys of a request and looks for their objects, several
// at a time. It fails with ErrDisabled, with ErrInvalidKey whose detail is the
// field, or with a fault.NotFound that names the field. Without refs nothing
// is needed of the bucket, and it succeeds.
func (s *Service) Check(ctx context.Context, refs []Ref) error {
	if len(refs) == 0 {
		return nil
	}
	if s.bucket == nil {
		return ErrDisabled
	}
	first := map[Key]string{} // the field that names the key first
	var keys []Key
	for _, ref := range refs {
		key, err := ParseKey(ref.Key)
		if err != nil {
			return ErrInvalidKey.WithDetail("%s", ref.Field)
		}
		if _, seen := first[key]; !seen {
			first[key] = ref.Field
			keys = append(keys, key)
		}
	}
	missing := make([]bool, len(keys)) // the first of the request is told, not the first answer
	g, lookups := errgroup.WithContext(ctx)
	g.SetLimit(parallelLookups)
	for i, key := range keys {
		g.Go(func() error {
			_, err := s.bucket.Stat(lookups, key.String())
			missing[i] = errors.Is(err, objectstore.ErrNotFound)
			if missing[i] {
				return nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return storeFault("look for assets", err)
	}
	if i := slices.Index(missing, true); i >= 0 {
		return fault.NotFoundf("%s names an asset that was not uploaded", first[keys[i]])
	}
	return nil
}

// Lookup parses a key and checks that its object is there; a missing one is
// objectstore.ErrNotFound, a malformed key ErrInvalidKey.
func (s *Service) Lookup(ctx context.Context, key string) (Key, error) {
	if s.bucket == nil {
		return Key{}, ErrDisabled
	}
	k, err := ParseKey(key)
	if err != nil {
		return Key{}, ErrInvalidKey.Because(err)
	}
	if _, err := s.bucket.Stat(ctx, key); err != nil {
		return Key{}, storeFault("look for asset", err)
	}
	return k, nil
}

// FetchTo brings the object to the local file dst, which must not exist and
// belongs to the caller, through the cache. dst is read-only: it shares its
// bytes with the cache and with other jobs.
//
// Bytes that do not hash to the key are ErrCorrupt, a missing object is
// objectstore.ErrNotFound, and a store out of reach, worth another try later,
// objectstore.ErrUnavailable.
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

// storeFault makes a failure of the store that may pass one that the client
// may see; any other stays an internal one.
func storeFault(op string, err error) error {
	err = fmt.Errorf("%s: %w", op, err)
	if errors.Is(err, objectstore.ErrUnavailable) {
		return errStoreDown.Because(err)
	}
	return err
}
