package simulation

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"cutroom/internal/storage/objectstore"
)

// bucket holds the objects of all replicas.
type bucket struct {
	mu      sync.Mutex
	objects map[string]stored
}

type stored struct {
	content []byte
	at      time.Time
}

func (b *bucket) keys(prefix string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(b.objects)), func(key string) bool { return !strings.HasPrefix(key, prefix) })
}

func (b *bucket) get(key string) (stored, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.objects[key]
	if !ok {
		return o, objectstore.ErrNotFound
	}
	return o, nil
}

// store connects one replica to the bucket.
type store struct{ r *replica }

func (s store) bucket() *bucket { return s.r.world.bucket }

// do makes one request. A failure is a network failure.
func (s store) do(ctx context.Context, w weight, what, key string, effect func() error) error {
	err := s.r.do(ctx, w, what, key, effect)
	if err == errLost || err == errCrashed {
		err = fmt.Errorf("%w: %w", objectstore.ErrUnavailable, err)
	}
	return err
}

func (s store) Put(ctx context.Context, key, file, _ string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return s.do(ctx, write, "put", key, func() error {
		b := s.bucket()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.objects[key] = stored{content, time.Now()}
		return nil
	})
}

func (s store) Fetch(ctx context.Context, key, dst string) error {
	return s.do(ctx, write, "fetch", key, func() error {
		o, err := s.bucket().get(key)
		if err != nil {
			return err
		}
		return os.WriteFile(dst, o.content, 0o600)
	})
}

func (s store) Stat(ctx context.Context, key string) (info objectstore.Info, err error) {
	err = s.do(ctx, read, "stat", key, func() error {
		o, err := s.bucket().get(key)
		info = objectstore.Info{Key: key, SizeBytes: int64(len(o.content)), ModTime: o.at}
		return err
	})
	return info, err
}

func (s store) Delete(ctx context.Context, keys ...string) error {
	if len(keys) == 0 {
		return nil
	}
	return s.do(ctx, write, "delete", strings.Join(keys, " "), func() error {
		b := s.bucket()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, key := range keys {
			delete(b.objects, key)
		}
		return nil
	})
}

func (s store) List(ctx context.Context, prefix string, each func(objectstore.Info) error) error {
	var keys []string
	if err := s.do(ctx, read, "list", prefix, func() error { keys = s.bucket().keys(prefix); return nil }); err != nil {
		return err
	}
	for _, key := range keys {
		o, err := s.bucket().get(key)
		if err != nil {
			continue // deleted in the meantime
		}
		if err := each(objectstore.Info{Key: key, SizeBytes: int64(len(o.content)), ModTime: o.at}); err != nil {
			return err
		}
	}
	return nil
}

// The simulated code never reads a part of an object.
func (s store) Open(context.Context, string) (objectstore.Object, error) {
	return nil, objectstore.ErrNotFound
}

func (s store) OpenKnown(context.Context, objectstore.Info) (objectstore.Object, error) {
	return nil, objectstore.ErrNotFound
}
