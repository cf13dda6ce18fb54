package asset

import (
	"context"
	"errors"
	"fmt"
	"os"

	"cutroom/internal/disk"
	"cutroom/internal/diskcache"
	"cutroom/internal/objectstore"
)

// maxDownloads bounds the objects that are fetched from the bucket at a time for jobs. As many may be
// fetched for requests that read an asset. Each of them moves in several parts at once.
const maxDownloads = 4

// NewCache returns the cache in dir, which should be on the disk of the work
// folders. A file named <sha256>.<ext> in it is complete and verified.
func NewCache(dir string, maxBytes int64) (*diskcache.Cache, error) {
	return diskcache.New(diskcache.Config{Dir: dir, MaxBytes: maxBytes, Volatile: true, EvictLinked: true,
		Owns: func(name string) bool { _, err := ParseName(name); return err == nil }})
}

// download brings an asset into the cache.
func (s *Service) download(ctx context.Context, k Key, path string) error {
	whole, err := fetchVerified(ctx, s.bucket, k, path)
	if err != nil {
		return err
	}
	return s.noteVerified(ctx, whole)
}

// fetchVerified downloads the object to dst and checks its hash. It deletes an object
// that is damaged in the bucket: while it exists, uploads of it are skipped, so nobody
// could replace it.
func fetchVerified(ctx context.Context, from *objectstore.Bucket, k Key, dst string) (Found, error) {
	for try := 1; ; try++ {
		etag, err := from.FetchVersion(ctx, k.String(), dst)
		if err != nil {
			return Found{}, fmt.Errorf("fetch asset: %w", err)
		}
		sum, size, err := disk.Digest(ctx, dst)
		if err != nil {
			return Found{}, fmt.Errorf("verify asset: %w", err)
		}
		if sum == k.SHA256 {
			return Found{Key: k, SizeBytes: size, etag: etag}, nil
		}
		if err := os.Remove(dst); err != nil {
			return Found{}, fmt.Errorf("verify asset: %w", err)
		}
		if try == 1 {
			continue // the transfer may be at fault, or an upload that has just replaced the object
		}
		corrupt := fmt.Errorf("%w: %s holds %d bytes of hash %s", ErrCorrupt, k, size, sum)
		after, err := from.Stat(ctx, k.String())
		if err == nil && after.ETag == etag {
			err = from.Delete(ctx, k.String())
		}
		if err != nil && !errors.Is(err, objectstore.ErrNotFound) {
			// Not %w: that the store is unavailable now is not the job's failure.
			corrupt = fmt.Errorf("%w; not deleted: %v", corrupt, err)
		}
		return Found{}, corrupt
	}
}
