// Package objectstore keeps files that outlive a request, as whole objects under keys. [Store] has two
// implementations: [Dir], a local directory, and [Bucket], an S3-compatible service that also issues presigned
// URLs.
//
// An object becomes visible only when it is complete and is replaced as a whole, so a reader never sees half of
// one. The package does not interpret the bytes or know their owners; its callers choose the keys.
package objectstore

import (
	"context"
	"errors"
	"io"
	"path"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"cutroom/internal/base/rescue"
)

var (
	// ErrNotFound is returned, possibly wrapped, for a key without an object.
	ErrNotFound = errors.New("object not found")

	// ErrBadKey is returned, possibly wrapped, for a key that [CheckKey] refuses. It does not repeat the key, which may
	// come from an attacker.
	ErrBadKey = errors.New("bad object key")

	// ErrUnavailable is wrapped by temporary failures of the store: unreachable, overloaded, stalled or answering 5xx
	// after every retry.
	ErrUnavailable = errors.New("object store unavailable")

	// ErrRefused is wrapped if the store refuses a request that it should serve, and would refuse it again: the access
	// key is wrong or lacks a permission, the bucket does not exist or is in another region.
	ErrRefused = errors.New("object store refuses the request")

	// ErrChanged is returned when an object was overwritten while it was read.
	ErrChanged = errors.New("object changed while it was read")
)

// Info describes one stored object.
type Info struct {
	Key         string
	SizeBytes   int64
	ModTime     time.Time // when the object was put
	ETag        string    // quoted, usable in an HTTP header; changes when the bytes change
	ContentType string    // empty in a Bucket's List, which does not include it
}

// Object is an open object with random access, usable with http.ServeContent. Only one goroutine may use it at a time,
// and the caller must close it and not read it after that.
type Object interface {
	io.ReadSeekCloser
	// Info describes the object as it was when it was opened.
	Info() Info
	// Expect announces the spans that the caller will read, each from its start. It saves a Bucket requests and bytes,
	// and restricts nothing.
	Expect(spans ...Span)
}

// Span is the bytes [From, To) of an object.
type Span struct{ From, To int64 }

// Store keeps whole objects under keys. Implementations are safe for concurrent use. Every method returns ErrBadKey for
// a key that CheckKey refuses, and stops early with ctx's error when ctx ends.
type Store interface {
	// Put stores the file at path under key and replaces an existing object. The caller still owns the file and
	// removes it, but must not write to it again: Dir may share its bytes. contentType may be empty; Dir always
	// derives it from the key's extension.
	Put(ctx context.Context, key, path, contentType string) error

	// Fetch copies the whole object to the local file dst, which appears only when complete and replaces an existing
	// file. The folder of dst must exist. The caller must not write to dst: Dir may share its bytes.
	Fetch(ctx context.Context, key, dst string) error

	// Open gives random access to the object; reading from a Bucket fails after ctx has ended. Seeking sends no
	// request.
	Open(ctx context.Context, key string) (Object, error)

	// OpenKnown is Open for an object whose key and size the caller already knows, which saves a Bucket a request. The
	// Object's Info is info.
	OpenKnown(ctx context.Context, info Info) (Object, error)

	// Stat describes the object, or returns ErrNotFound.
	Stat(ctx context.Context, key string) (Info, error)

	// Delete removes objects; a key without an object is not an error. It continues after a failure and returns all
	// failures joined.
	Delete(ctx context.Context, keys ...string) error

	// List calls each for every object whose key starts with prefix, in no particular order, and stops at the first
	// error of each. The prefix may end in the middle of a name. each may delete the object it is given.
	List(ctx context.Context, prefix string, each func(Info) error) error
}

// maxKeyBytes is well below S3's 1024 and leaves room for a STORAGE_PATH in front. The file system limits a single name
// to 255 bytes.
const (
	maxKeyBytes  = 700
	maxNameBytes = 255
	keyChars     = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
)

// CheckKey returns ErrBadKey unless key may name an object: names of [A-Za-z0-9._-] joined by single slashes, none
// starting with a dot, at most 700 bytes in all and 255 in one name.
func CheckKey(key string) error {
	if len(key) > maxKeyBytes {
		return ErrBadKey
	}
	for name := range strings.SplitSeq(key, "/") {
		if name == "" || name[0] == '.' || len(name) > maxNameBytes || strings.Trim(name, keyChars) != "" {
			return ErrBadKey
		}
	}
	return nil
}

// checkPrefix is CheckKey for the start of a key: it may be empty or end in a slash.
func checkPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	return CheckKey(strings.TrimSuffix(prefix, "/"))
}

// contentTypes replaces package mime, whose table depends on files of the operating system.
var contentTypes = map[string]string{
	".mp4":  "video/mp4",
	".m4v":  "video/mp4",
	".mov":  "video/quicktime",
	".webm": "video/webm",
	".mkv":  "video/x-matroska",
	".m4a":  "audio/mp4",
	".mp3":  "audio/mpeg",
	".wav":  "audio/wav",
	".aac":  "audio/aac",
	".flac": "audio/flac",
	".ogg":  "audio/ogg",
	".jpg":  "image/jpeg",
	".json": "application/json",
	".txt":  "text/plain; charset=utf-8",
}

// ContentType returns the media type for the extension of a key or file name, application/octet-stream if it is
// unknown.
func ContentType(name string) string {
	if t, ok := contentTypes[strings.ToLower(path.Ext(name))]; ok {
		return t
	}
	return "application/octet-stream"
}

// Each calls do for every item and its index, at most limit at a time, and joins all errors in the order of items.
func Each[T any](limit int, items []T, do func(int, T) error) error {
	errs := make([]error, len(items))
	var group errgroup.Group
	group.SetLimit(limit)
	for i, item := range items {
		group.Go(func() error { errs[i] = rescue.Do(func() error { return do(i, item) }); return nil })
	}
	_ = group.Wait() // errs has all errors
	return errors.Join(errs...)
}

// prefixesAtOnce is how many prefixes DeletePrefix lists at once.
const prefixesAtOnce = 8

// DeletePrefix removes all objects whose keys begin with one of the prefixes, of which there may be thousands.
func DeletePrefix(ctx context.Context, s Store, prefixes ...string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(prefixesAtOnce)
	for _, prefix := range prefixes {
		group.Go(func() error {
			var keys []string
			err := s.List(ctx, prefix, func(o Info) error {
				keys = append(keys, o.Key)
				return nil
			})
			return errors.Join(err, s.Delete(ctx, keys...))
		})
	}
	return group.Wait()
}
