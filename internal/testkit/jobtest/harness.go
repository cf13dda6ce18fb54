// Package jobtest contains what the tests of both kinds of job share: a harness with a database, a store and any number
// of replicas, and a simulated engine.
package jobtest

import (
	"context"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"cutroom/internal/base/db"
	"cutroom/internal/sandbox/bucket"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/dbtest"
)

// Harness is a database and a store. The caller creates the replicas.
type Harness struct {
	T      testing.TB
	DB     *db.DB
	Dir    string // for the replicas' files
	Store  objectstore.Store
	Bucket *objectstore.Bucket // the same store, or nil

	config  objectstore.BucketConfig
	queries atomic.Int64
}

// New returns a harness whose store is a folder.
func New(t testing.TB, d *db.DB) *Harness {
	t.Helper()
	h := &Harness{T: t, DB: d, Dir: t.TempDir()}
	store, err := objectstore.NewDir(h.Objects())
	if err != nil {
		t.Fatal(err)
	}
	h.Store = store
	return h
}

// Objects returns the folder of the store.
func (h *Harness) Objects() string { return filepath.Join(h.Dir, "objects") }

// UseBucket replaces the store with a bucket, on the S3 server of CUTROOM_TEST_S3 if that is set and otherwise on the
// stand-in.
func (h *Harness) UseBucket() {
	h.T.Helper()
	real, err := apitest.RealBucket(h.T)
	if err != nil {
		h.T.Fatal(err)
	}
	if real != nil {
		h.config = objectstore.BucketConfig{Endpoint: real["OBJECT_STORE_ENDPOINT"], Region: real["OBJECT_STORE_REGION"],
			Bucket: real["OBJECT_STORE_BUCKET"], AccessKeyID: real["OBJECT_STORE_ACCESS_KEY_ID"],
			SecretAccessKey: real["OBJECT_STORE_SECRET_ACCESS_KEY"]}
	} else {
		o := bucket.Options{Name: "bucket", AccessKeyID: "access", SecretAccessKey: "secret", Dir: filepath.Join(h.Dir, "bucket")}
		standIn, err := bucket.New(o)
		if err != nil {
			h.T.Fatal(err)
		}
		server := httptest.NewServer(standIn)
		h.T.Cleanup(server.Close)
		h.config = objectstore.BucketConfig{Endpoint: server.URL, Bucket: o.Name, AccessKeyID: o.AccessKeyID, SecretAccessKey: o.SecretAccessKey}
	}
	h.Bucket = h.OpenBucket()
	h.Store = h.Bucket
}

// OpenBucket opens the bucket again, with its own connections.
func (h *Harness) OpenBucket() *objectstore.Bucket { return objectstore.NewBucket(h.config) }

// Exec runs a statement.
func (h *Harness) Exec(query string, args ...any) {
	h.T.Helper()
	dbtest.Exec(h.T, h.DB, query, args...)
}

// Number runs a query that returns one number.
func (h *Harness) Number(query string, args ...any) int64 {
	h.T.Helper()
	h.queries.Add(1)
	return dbtest.Number(h.T, h.DB, query, args...)
}

// Queries returns the number of calls of Number.
func (h *Harness) Queries() int64 { return h.queries.Load() }

// User creates a user with credits and the ledger entry for them.
func (h *Harness) User(credits int64) string {
	h.T.Helper()
	id := uuid.NewString()
	User(h.T, h.DB, id, credits)
	return id
}

// Put stores some bytes under a key.
func (h *Harness) Put(key string) {
	h.T.Helper()
	path := filepath.Join(h.T.TempDir(), "object")
	if err := os.WriteFile(path, []byte("bytes"), 0o600); err != nil {
		h.T.Fatal(err)
	}
	if err := h.Store.Put(h.T.Context(), key, path, ""); err != nil {
		h.T.Fatal(err)
	}
}

// Keys lists the objects in the store under a prefix.
func (h *Harness) Keys(prefix string) (keys []string) {
	h.T.Helper()
	err := h.Store.List(context.WithoutCancel(h.T.Context()), prefix, func(o objectstore.Info) error {
		keys = append(keys, o.Key)
		return nil
	})
	if err != nil {
		h.T.Fatal(err)
	}
	return keys
}

// Run runs the loops of a replica until stop is called or the test ends. stop waits for them.
func (h *Harness) Run(loops ...func(ctx context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(h.T.Context()))
	var running sync.WaitGroup
	for _, loop := range loops {
		running.Go(func() {
			if err := loop(ctx); err != nil {
				h.T.Errorf("replica: %v", err)
			}
		})
	}
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	h.T.Cleanup(stop)
	return stop
}

// Notifier returns the loop that receives notifications for workers.
func Notifier(d *db.DB) func(ctx context.Context) error {
	return func(ctx context.Context) error { return d.RunNotifier(ctx, false, true) }
}

// Eventually waits for done, and ends the test after two minutes.
func (h *Harness) Eventually(what string, done func() bool) {
	h.T.Helper()
	h.Within(2*time.Minute, what, done)
}

// Within is Eventually with another limit.
func (h *Harness) Within(limit time.Duration, what string, done func() bool) {
	h.T.Helper()
	for deadline := time.Now().Add(limit); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			h.T.Fatalf("after %v still not: %s", limit, what)
		}
	}
}

// Store runs a callback before it stores or lists objects.
type Store struct {
	objectstore.Store
	OnPut  func()
	OnList func(prefix string)
}

// Put stores a file.
func (s Store) Put(ctx context.Context, key, path, contentType string) error {
	if s.OnPut != nil {
		s.OnPut()
	}
	return s.Store.Put(ctx, key, path, contentType)
}

// List lists objects.
func (s Store) List(ctx context.Context, prefix string, each func(objectstore.Info) error) error {
	if s.OnList != nil {
		s.OnList(prefix)
	}
	return s.Store.List(ctx, prefix, each)
}
