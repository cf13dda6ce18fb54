// Package objectstore keeps the bytes that outlive a request, as whole objects
// under keys. It has two implementations of one [Store]: [Dir], a directory of
// this machine, and [Bucket], an S3-compatible service that also hands out
// presigned URLs.
//
// An object becomes visible only when it is complete and is replaced as a
// whole; a reader never sees half of one. The package knows nothing of what
// the bytes mean or who owns them: keys are chosen by its users.
package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

var (
	// ErrNotFound is returned, possibly wrapped, for a key that holds no object.
	ErrNotFound = errors.New("object not found")

	// ErrBadKey is returned, possibly wrapped, for a key that [CheckKey] refuses.
	ErrBadKey = errors.New("bad object key")

	// ErrUnavailable is wrapped by failures that are the store's and may pass:
	// unreachable, overloaded, stalled or answering 5xx after every retry.
	ErrUnavailable = errors.New("object store unavailable")

	// ErrChanged is returned when an object was overwritten while it was read.
	ErrChanged = errors.New("object changed while it was read")
)

// Info describes one stored object.
type Info struct {
	Key         string
	SizeBytes   int64
	ModTime     time.Time // when the object was put
	ETag        string    // quoted, fit for an HTTP header; changes when the bytes change
	ContentType string    // empty in a List of a Bucket, which does not tell it
}

// Object is an open object with random access, fit for http.ServeContent. It
// is used by one goroutine at a time and must be closed.
type Object interface {
	io.ReadSeekCloser
	// Info describes the object as it was when it was opened.
	Info() Info
	// Expect announces the spans that will be read, each from its start. It
	// saves a Bucket requests and bytes; it restricts nothing.
	Expect(spans ...Span)
}

// Span is the bytes [From, To) of an object.
type Span struct{ From, To int64 }

// Store keeps whole objects under keys. Implementations are safe for
// concurrent use. Every method fails with ErrBadKey on a key that CheckKey
// refuses, and stops early with ctx's error when ctx ends.
type Store interface {
	// Put stores the file at path under key, replacing what was there. The
	// file stays where it is and remains the caller's to remove, but must not
	// be written to any more: Dir may share its bytes. contentType may be
	// empty; Dir always derives it from the key's extension.
	Put(ctx context.Context, key, path, contentType string) error

	// Fetch copies the whole object to the local file dst, which appears only
	// when it is complete and replaces what was there. The folder of dst must
	// exist. dst must be treated as read-only: Dir may share its bytes.
	Fetch(ctx context.Context, key, dst string) error

	// Open gives random access to the object until ctx ends. Seeking is free.
	Open(ctx context.Context, key string) (Object, error)

	// OpenKnown is Open for an object that the caller has on record, with its
	// size: a Bucket is not asked to describe it. The Object's Info is info.
	OpenKnown(ctx context.Context, info Info) (Object, error)

	// Stat describes the object, or fails with ErrNotFound.
	Stat(ctx context.Context, key string) (Info, error)

	// Delete removes objects; keys without one are no error. It goes on after
	// a failure and returns all failures joined.
	Delete(ctx context.Context, keys ...string) error

	// List calls each for every object whose key starts with prefix, in no
	// particular order, and stops at the first error of each. The prefix may
	// end in the middle of a name. each may delete what it is shown.
	List(ctx context.Context, prefix string, each func(Info) error) error
}

// maxKeyBytes is well below S3's 1024 and leaves room for a STORAGE_PATH in
// front of it; a single name is bounded by the file system's 255.
const (
	maxKeyBytes  = 700
	maxNameBytes = 255
)

// CheckKey reports whether key may name an object: names of [A-Za-z0-9._-]
// joined by single slashes, none starting with a dot, at most 700 bytes in
// all and 255 in one name. The error wraps ErrBadKey and does not repeat the
// key, which may come from a stranger.
func CheckKey(key string) error {
	if key == "" {
		return fmt.Errorf("%w: empty", ErrBadKey)
	}
	if len(key) > maxKeyBytes {
		return fmt.Errorf("%w: longer than %d bytes", ErrBadKey, maxKeyBytes)
	}
	for name := range strings.SplitSeq(key, "/") {
		switch {
		case name == "":
			return fmt.Errorf("%w: empty name between slashes", ErrBadKey)
		case name[0] == '.':
			return fmt.Errorf("%w: name starts with a dot", ErrBadKey)
		case len(name) > maxNameBytes:
			return fmt.Errorf("%w: name longer than %d bytes", ErrBadKey, maxNameBytes)
		case strings.ContainsFunc(name, badKeyRune):
			return fmt.Errorf("%w: character outside A-Z a-z 0-9 . _ -", ErrBadKey)
		}
	}
	return nil
}

// checkPrefix is CheckKey for the start of a key: empty and a trailing slash
// are fine.
func checkPrefix(prefix string) error {
	if trimmed := strings.TrimSuffix(prefix, "/"); trimmed != "" {
		return CheckKey(trimmed)
	}
	if prefix != "" {
		return fmt.Errorf("%w: starts with a slash", ErrBadKey)
	}
	return nil
}

func badKeyRune(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		return false
	}
	return r != '.' && r != '_' && r != '-'
}

// contentTypes is a table of our own because the one of package mime depends
// on files of the machine.
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

// ContentType returns the media type for the extension of a key or file name,
// application/octet-stream when it is unknown.
func ContentType(name string) string {
	if t, ok := contentTypes[strings.ToLower(path.Ext(name))]; ok {
		return t
	}
	return "application/octet-stream"
}

// prefixesAtOnce is how many prefixes are looked for at the same time.
const prefixesAtOnce = 8

// DeletePrefix removes all objects whose keys begin with one of the prefixes, of
// which there may be thousands.
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
