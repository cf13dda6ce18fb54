package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// fetch places the part at path if the cache has it.
func (r *run) fetch(ctx context.Context, key, path string) bool {
	if r.cfg.Cache == nil {
		return false
	}
	found, err := r.cfg.Cache.Get(ctx, r.job.CacheScope, key, path)
	if err != nil && !errors.Is(err, fs.ErrExist) { // a part with the same content is already there
		r.log.Warn("reading from the part cache failed", "key", key, "error", err)
	}
	return found
}

// keep puts a finished file into the cache. The render continues if the cache fails.
func (r *run) keep(ctx context.Context, key, path string) {
	if r.cfg.Cache == nil {
		return
	}
	if err := r.cfg.Cache.Put(ctx, r.job.CacheScope, key, path); err != nil && ctx.Err() == nil {
		r.log.Warn("writing to the part cache failed", "key", key, "error", err)
	}
}

// fetchPart fetches a part from the cache, unless the cached file is broken.
func (r *run) fetchPart(ctx context.Context, p *videoPart) bool {
	path := r.path(p.File)
	if !r.fetch(ctx, p.Key, path) {
		return false
	}
	if err := p.check(path); err != nil {
		r.log.Warn("cached part is broken", "key", p.Key, "error", err)
		return os.Remove(path) != nil // if the part cannot be removed, fail the pass that follows
	}
	p.task.finish()
	return true
}

// finish renames an unfinished file to its final name, and caches it if it is whole.
func (r *run) finish(ctx context.Context, key, file string, whole bool) error {
	if err := os.Rename(r.path(unfinished(file)), r.path(file)); err != nil {
		return fmt.Errorf("render: %w", err)
	}
	if whole {
		r.keep(ctx, key, r.path(file))
	}
	return nil
}

// unfinished returns the name of a file while it is being written.
func unfinished(file string) string { return file + ".part" }

// fetchJSON reads a value from the cache.
func (r *run) fetchJSON(ctx context.Context, key string, value any) bool {
	path := r.path(key)
	if !r.fetch(ctx, key, path) {
		return false
	}
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, value)
	}
	// The file may be a hard link to the cache, so keepJSON must not write into it.
	if rerr := os.Remove(path); err == nil {
		err = rerr
	}
	if err != nil {
		r.log.Warn("cached value is unreadable", "key", key, "error", err)
	}
	return err == nil
}

// keepJSON puts a value into the cache.
func (r *run) keepJSON(ctx context.Context, key string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("render: keep %s: %w", key, err)
	}
	if err := os.WriteFile(r.path(key), data, 0o640); err != nil {
		return fmt.Errorf("render: %w", noSpace(err))
	}
	r.keep(ctx, key, r.path(key))
	return nil
}
