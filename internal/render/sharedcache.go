package render

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"cutroom/internal/diskcache"
	"cutroom/internal/objectstore"
)

// SharedCache is a part cache that replicas share through the bucket, with a
// local one in front. What is dear to make and cheap to move is shared: video
// parts, what analysing a source found, and the decision about encoders, which
// assistants must know. Decoded sound is neither dear nor small.
type SharedCache struct {
	local  *diskcache.Cache
	bucket objectstore.Store
}

// NewSharedCache returns the cache.
func NewSharedCache(local *diskcache.Cache, bucket objectstore.Store) *SharedCache {
	return &SharedCache{local: local, bucket: bucket}
}

func shared(key string) bool {
	return strings.HasPrefix(key, "video-") || strings.HasPrefix(key, "info-") || strings.HasPrefix(key, "staff-")
}

func partKey(scope, key string) string { return "parts/" + scope + "/" + key }

// Get implements engine.PartCache.
func (c *SharedCache) Get(ctx context.Context, scope, key, dst string) (bool, error) {
	found, err := c.local.Get(ctx, scope, key, dst)
	if found || err != nil || !shared(key) {
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
	if !shared(key) {
		return err
	}
	return errors.Join(err, c.bucket.Put(ctx, partKey(scope, key), src, "application/octet-stream"))
}
