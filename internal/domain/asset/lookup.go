package asset

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"cutroom/internal/base/db"
	"cutroom/internal/storage/objectstore"
)

// Found is an asset whose object is in the bucket.
type Found struct {
	Key         Key
	SizeBytes   int64
	contentType string
	// hashVerified says that the bytes of this version were hashed and match the key.
	hashVerified bool
	// announced says that the object is missing but its upload was requested.
	announced bool
	// removals is the number of removals when the object was looked up.
	removals int64
}

// MissingError reports a key without an object. It is an objectstore.ErrNotFound.
type MissingError struct{ Key Key }

func (e *MissingError) Error() string { return "asset " + e.Key.String() + " is not in the bucket" }

// Unwrap returns objectstore.ErrNotFound.
func (e *MissingError) Unwrap() error { return objectstore.ErrNotFound }

// parallelLookups bounds the concurrent bucket calls of one request.
const parallelLookups = 8

// Lookup looks for the objects of keys in parallel. The error joins the errors of all keys, in the order of the keys;
// for a missing object it is a MissingError. Pass the result to [Hold] in the transaction that uses it.
func (s *Service) Lookup(ctx context.Context, keys ...Key) ([]Found, error) {
	if s.Bucket == nil {
		return nil, ErrDisabled
	}
	rows, err := s.rows(ctx, keys)
	if err != nil {
		return nil, err
	}
	found := make([]Found, len(keys))
	// If the store does not answer, looking for the other keys would multiply the time until the error.
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	err = objectstore.Each(parallelLookups, keys, func(i int, key Key) (err error) {
		if found[i], err = s.stat(ctx, key, rows[key.String()]); err != nil && !missing(err) {
			stop(err)
		}
		return err
	})
	return found, err
}

// Find is Lookup for one key.
func (s *Service) Find(ctx context.Context, key Key) (Found, error) {
	found, err := s.Lookup(ctx, key)
	if err != nil {
		return Found{}, err
	}
	return found[0], nil
}

// known is what the database says about an asset.
type known struct {
	removals int64
	verified string // version
}

// rows reads what the database says about assets. It runs before their objects are looked up, so that [Hold] notices a
// removal in between.
func (s *Service) rows(ctx context.Context, keys []Key) (map[string]known, error) {
	all := map[string]known{}
	if len(keys) == 0 {
		return all, nil
	}
	args, holes := make([]any, len(keys)), make([]string, len(keys))
	for i, key := range keys {
		args[i], holes[i] = key.String(), fmt.Sprintf("$%d", i+1)
	}
	err := db.Each(ctx, s.DB, func(row *db.Rows) error {
		var key string
		var k known
		err := row.Scan(&key, &k.removals, &k.verified)
		all[key] = k
		return err
	}, `SELECT asset_key, removals, COALESCE(verified, '') FROM assets WHERE asset_key IN (`+strings.Join(holes, ", ")+`)`, args...)
	if err != nil {
		return nil, fmt.Errorf("look for assets: %w", err)
	}
	return all, nil
}

func (s *Service) stat(ctx context.Context, key Key, row known) (Found, error) {
	info, err := s.Bucket.Stat(ctx, key.String())
	if missing(err) {
		return Found{}, &MissingError{key}
	}
	if err != nil {
		return Found{}, fmt.Errorf("look for asset: %w", err)
	}
	return Found{Key: key, SizeBytes: info.SizeBytes, contentType: info.ContentType, removals: row.removals,
		hashVerified: row.verified == version(info.SizeBytes, info.ETag)}, nil
}

// version distinguishes the bytes of an object from others under the same key.
func version(sizeBytes int64, etag string) string { return fmt.Sprintf("%d %s", sizeBytes, etag) }

// missing reports whether an object is not in the bucket.
func missing(err error) bool { return errors.Is(err, objectstore.ErrNotFound) }
