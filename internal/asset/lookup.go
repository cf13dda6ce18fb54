package asset

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	"cutroom/internal/db"
	"cutroom/internal/objectstore"
	"cutroom/internal/rescue"
)

// Found is an asset whose object is in the bucket.
type Found struct {
	Key         Key
	SizeBytes   int64
	contentType string
	etag        string
	// verified says that the bytes of this version were hashed and match the key.
	verified bool
	// announced says that the object is missing but its upload was requested.
	announced bool
	// removals is the number of removals when the object was looked up.
	removals int64
}

// parallelLookups bounds the concurrent bucket calls of one request.
const parallelLookups = 8

// Lookup parses keys and looks for their objects in parallel. The error of a key is
// ErrInvalidKey, or objectstore.ErrNotFound for a missing object. Pass what was found
// to [Hold] in the transaction that uses it.
func (s *Service) Lookup(ctx context.Context, keys []string) (found []Found, errs []error) {
	found, errs = make([]Found, len(keys)), make([]error, len(keys))
	var valid []string
	for i, key := range keys {
		var err error
		switch found[i].Key, err = ParseKey(key); {
		case s.bucket == nil:
			errs[i] = ErrDisabled
		case err != nil:
			errs[i] = err
		default:
			valid = append(valid, key)
		}
	}
	removals, err := s.removals(ctx, valid)
	var group errgroup.Group
	group.SetLimit(parallelLookups)
	for i := range keys {
		if errs[i] != nil {
			continue
		}
		if errs[i] = err; err == nil {
			group.Go(func() error {
				errs[i] = rescue.Do(func() error { return s.stat(ctx, &found[i], removals) })
				return nil
			})
		}
	}
	_ = group.Wait() // errs has every error
	return found, errs
}

// known is what the database says of an asset.
type known struct {
	removals int64
	verified string // version
}

// removals reads the rows of assets. It runs before their objects are looked up, so that
// [Hold] notices a removal in between.
func (s *Service) removals(ctx context.Context, keys []string) (map[string]known, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	args, holes := make([]any, len(keys)), make([]string, len(keys))
	for i, key := range keys {
		args[i], holes[i] = key, fmt.Sprintf("$%d", i+1)
	}
	all := map[string]known{}
	err := db.Each(ctx, s.db, func(row *db.Rows) error {
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

// stat looks up the object of a key and completes its Found.
func (s *Service) stat(ctx context.Context, f *Found, all map[string]known) error {
	k := all[f.Key.String()]
	f.removals = k.removals
	info, err := s.bucket.Stat(ctx, f.Key.String())
	if err != nil {
		return fmt.Errorf("look for asset: %w", err)
	}
	f.SizeBytes, f.contentType, f.etag = info.SizeBytes, info.ContentType, info.ETag
	f.verified = k.verified == f.version()
	return nil
}

// version distinguishes the bytes of an object from others under the same key.
func (f Found) version() string { return fmt.Sprintf("%d %s", f.SizeBytes, f.etag) }

// find is Lookup for one key.
func (s *Service) find(ctx context.Context, key Key) (Found, error) {
	found, errs := s.Lookup(ctx, []string{key.String()})
	return found[0], errs[0]
}

// missing reports whether an object is not in the bucket.
func missing(err error) bool { return errors.Is(err, objectstore.ErrNotFound) }
