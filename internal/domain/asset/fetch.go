// Assets on the local disk: the cache is asked first, and a download checks the hash.

package asset

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sync/semaphore"

	"cutroom/internal/storage/disk"
	"cutroom/internal/storage/objectstore"
)

// FetchTo brings the object to the local file dst, which must not exist and belongs to the caller, through the cache.
// dst is read-only: it shares its bytes with the cache and with other jobs.
//
// The error is ErrCorrupt for bytes that do not hash to the key, objectstore.ErrNotFound for a missing object, and
// objectstore.ErrUnavailable if the store cannot be reached and a retry may help.
func (s *Service) FetchTo(ctx context.Context, key Key, dst string) error {
	return s.fetch(ctx, key, dst, s.jobDownloads)
}

// FetchForRequest is FetchTo for a request, which must not keep jobs waiting.
func (s *Service) FetchForRequest(ctx context.Context, key Key, dst string) error {
	return s.fetch(ctx, key, dst, s.requestDownloads)
}

func (s *Service) fetch(ctx context.Context, key Key, dst string, slots *semaphore.Weighted) error {
	if s.Bucket == nil {
		return ErrDisabled
	}
	return s.Cache.Load(ctx, key.fileName(), dst, func(ctx context.Context, path string) error {
		if err := slots.Acquire(ctx, 1); err != nil {
			return context.Cause(ctx)
		}
		defer slots.Release(1)
		return s.download(ctx, key, path)
	})
}

// maxDownloads bounds the concurrent downloads from the bucket for jobs. Requests that read an asset have a separate
// limit of the same size. Each download fetches several parts at once.
const maxDownloads = 4

// download fetches the object to dst, checks its hash, and notes that this version of it matches. It deletes an
// object that is damaged in the bucket: while it exists, uploads of it are skipped, so nobody could replace it.
func (s *Service) download(ctx context.Context, k Key, dst string) error {
	for try := 1; ; try++ {
		etag, err := s.Bucket.FetchVersion(ctx, k.String(), dst)
		if err != nil {
			return fmt.Errorf("fetch asset: %w", err)
		}
		sum, size, err := disk.Digest(ctx, dst)
		if err != nil {
			return fmt.Errorf("verify asset: %w", err)
		}
		if sum == k.SHA256 {
			_, err := s.DB.Exec(ctx, `UPDATE assets SET verified = $2 WHERE asset_key = $1`, k.String(), version(size, etag))
			if err != nil {
				return fmt.Errorf("note a verified asset: %w", err)
			}
			return nil
		}
		if err := os.Remove(dst); err != nil {
			return fmt.Errorf("verify asset: %w", err)
		}
		if try == 1 {
			continue // the transfer may be at fault, or an upload that has just replaced the object
		}
		corrupt := fmt.Errorf("%w: %s holds %d bytes of hash %s", ErrCorrupt, k, size, sum)
		after, err := s.Bucket.Stat(ctx, k.String())
		if err == nil && after.ETag == etag {
			err = s.Bucket.Delete(ctx, k.String())
		}
		if err != nil && !errors.Is(err, objectstore.ErrNotFound) {
			// Not %w: the job fails because the asset is corrupt, not because the store is unavailable right now.
			corrupt = fmt.Errorf("%w; not deleted: %v", corrupt, err)
		}
		return corrupt
	}
}
