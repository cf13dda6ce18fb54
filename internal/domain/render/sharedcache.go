package render

import (
	"context"
	"errors"
	"fmt"

	"cutroom/internal/film/engine"
	"cutroom/internal/storage/diskcache"
	"cutroom/internal/storage/objectstore"
)

// SharedCache is a part cache that replicas share through the bucket, with a local one in front. The engine says which
// parts are shared.
type SharedCache struct {
	local  *diskcache.Cache
	bucket objectstore.Store
}

// NewSharedCache returns the cache.
func NewSharedCache(local *diskcache.Cache, bucket objectstore.Store) *SharedCache {
	return &SharedCache{local: local, bucket: bucket}
}

func partKey(scope, key string) string { return "parts/" + scope + "/" + key }

// Get implements engine.PartCache.
func (c *SharedCache) Get(ctx context.Context, scope, key, dst string) (bool, error) {
	found, err := c.local.Get(ctx, scope, key, dst)
	if found || err != nil || !engine.Shared(key) {
		return found, err
	}
	err = c.bucket.Fetch(ctx, partKey(scope, key), dst)
	if errors.Is(err, objectstore.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("fetch shared part: %w", err)
	}
	return true, c.local.Put(ctx, scope, key, dst)
}

// Put implements engine.PartCache.
func (c *SharedCache) Put(ctx context.Context, scope, key, src string) error {
	err := c.local.Put(ctx, scope, key, src)
	if !engine.Shared(key) {
		return err
	}
	return errors.Join(err, c.bucket.Put(ctx, partKey(scope, key), src, "application/octet-stream"))
}
