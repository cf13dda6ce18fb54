package render

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"cutroom/internal/apitest"
	"cutroom/internal/db"
	"cutroom/internal/derived"
	"cutroom/internal/engine"
	"cutroom/internal/job"
	"cutroom/internal/media"
	"cutroom/internal/objectstore"
	"cutroom/internal/sandbox/bucket"
	"cutroom/internal/sweep"
	"cutroom/internal/timeline"
)

// harness is a database, a store, and any number of replicas on them. Their engine only
// waits; everything else is real.
type harness struct {
	t      testing.TB
	db     *db.DB
	store  objectstore.Store
	bucket *objectstore.Bucket // the same store, or nil
	config objectstore.BucketConfig
	dir    string
	serial atomic.Int64
	asked  atomic.Int64 // by number
}

func newHarness(t testing.TB, d *db.DB) *harness {
	t.Helper()
	r := &harness{t: t, db: d, dir: t.TempDir()}
	store, err := objectstore.NewDir(filepath.Join(r.dir, "objects"))
	if err != nil {
		t.Fatal(err)
	}
	r.store = store
	return r
}

// shareBucket makes the store a bucket, on the S3 server of CUTROOM_TEST_S3 or else on the
// stand-in. Replicas share parts through it.
func (r *harness) shareBucket() {
	r.t.Helper()
	const access, secret = "access", "a secret of the stand-in"
	cfg := objectstore.BucketConfig{Bucket: "bucket", AccessKeyID: access, SecretAccessKey: secret}
	real, err := apitest.RealBucket(r.t)
	if err != nil {
		r.t.Fatal(err)
	}
	if real != nil {
		cfg = objectstore.BucketConfig{Endpoint: real["OBJECT_STORE_ENDPOINT"], Bucket: real["OBJECT_STORE_BUCKET"],
			AccessKeyID: real["OBJECT_STORE_ACCESS_KEY_ID"], SecretAccessKey: real["OBJECT_STORE_SECRET_ACCESS_KEY"]}
	} else {
		standIn, err := bucket.New(bucket.Options{Name: cfg.Bucket, AccessKeyID: access, SecretAccessKey: secret, Dir: filepath.Join(r.dir, "bucket")})
		if err != nil {
			r.t.Fatal(err)
		}
		server := httptest.NewServer(standIn)
		r.t.Cleanup(server.Close)
		cfg.Endpoint = server.URL
	}
	r.config = cfg
	r.bucket = r.openBucket()
	r.store = r.bucket
}

// openBucket opens the bucket again, with its own connections.
func (r *harness) openBucket() *objectstore.Bucket { return objectstore.NewBucket(r.config) }

func (r *harness) exec(query string, args ...any) {
	r.t.Helper()
	if _, err := r.db.Exec(r.t.Context(), query, args...); err != nil {
		r.t.Fatalf("%s: %v", query, err)
	}
}

func (r *harness) number(query string, args ...any) int64 {
	r.t.Helper()
	var n int64
	r.asked.Add(1)
	if err := r.db.QueryRow(r.t.Context(), query, args...).Scan(&n); err != nil {
		r.t.Fatalf("%s: %v", query, err)
	}
	return n
}

func (r *harness) user() string {
	r.t.Helper()
	id := fmt.Sprintf("user-%d", r.serial.Add(1))
	r.exec(`INSERT INTO users (id, provider, provider_sub, created_at, last_active_at) VALUES ($1, 'provider_a', $1, now_ms(), now_ms())`, id)
	return id
}

// source stores an object for jobs to read, like a cached input of the owner.
func (r *harness) source(owner string) map[string]object {
	r.t.Helper()
	path := filepath.Join(r.t.TempDir(), "source")
	if err := os.WriteFile(path, []byte("a film"), 0o600); err != nil {
		r.t.Fatal(err)
	}
	key := inputKey(owner, strings.Repeat("0", 64))
	if err := r.store.Put(r.t.Context(), key, path, "application/octet-stream"); err != nil {
		r.t.Fatal(err)
	}
	return map[string]object{"video": {Object: key}}
}

// enqueue inserts jobs as Submit does, but all in one transaction: listeners wake once, to
// a full queue. It returns their ids in order, and the database's time of the insert.
func (r *harness) enqueue(n int, owner string, sources map[string]object) (ids []string, atMs int64) {
	r.t.Helper()
	s := r.service(&simulated{}, r.db)
	sub := Submission{Timeline: timeline.Legacy("video", time.Second)}
	for range n {
		ids = append(ids, fmt.Sprintf("rnd-%08d", r.serial.Add(1)))
	}
	err := r.db.InTx(r.t.Context(), func(tx *db.Tx) error {
		for _, id := range ids {
			job := resolver{s: s, owner: owner, jobID: id, sub: sub, sources: sources}
			if err := job.insert(r.t.Context(), tx); err != nil {
				return err
			}
		}
		return tx.QueryRow(r.t.Context(), `SELECT now_ms()`).Scan(&atMs)
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return ids, atMs
}

// service returns one more replica, on the connections of d, with one slot.
func (r *harness) service(e Engine, d *db.DB) *Service {
	r.t.Helper()
	log := slog.New(slog.DiscardHandler)
	name := fmt.Sprintf("replica-%d", r.serial.Add(1))
	work := filepath.Join(r.dir, name)
	if err := os.MkdirAll(work, 0o700); err != nil {
		r.t.Fatal(err)
	}
	return New(Options{DB: d, Renewer: job.NewRenewer(d, name, log), Store: r.store, Bucket: r.bucket, Engine: e,
		Slots: media.NewSlots(1), OnDemand: derived.New(1, 2*time.Minute, log), CanWork: func(context.Context) (int64, error) { return 1 << 40, nil }, Timeout: time.Hour,
		WorkDir: work, InputLifetime: time.Hour, OutputLifetime: time.Hour,
		Sweeper:       sweep.New(sweep.Options{DB: d, Store: r.store, Rules: SweepRules(time.Hour, time.Hour), Log: log}),
		SignedURLLife: time.Minute, EraseCaches: func(context.Context, string) error { return nil }, Log: log})
}

// run runs a replica and its notifications until stop is called. stop returns when all
// work of the replica has ended.
func (r *harness) run(s *Service) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.db.RunNotifier(ctx, false, true); err != nil {
			r.t.Errorf("notifications: %v", err)
		}
	})
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			r.t.Errorf("worker: %v", err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	r.t.Cleanup(stop)
	return stop
}

// eventually waits for done, and ends the test if that takes too long.
func (r *harness) eventually(what string, limit time.Duration, done func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(limit); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("after %v still not: %s", limit, what)
		}
	}
}

// simulated is an engine whose films take a fixed time and no CPU. It shares parts through
// the coordinator exactly as the engine does, with one encoder.
type simulated struct {
	takes time.Duration // a film, or each of its parts
	parts int           // of a film; 0 makes films of one piece, without a coordinator
	// slowest is how much longer the first part takes than the others.
	slowest time.Duration
	// begin, unless nil, delays the first part until it is closed.
	begin <-chan struct{}
	cache engine.PartCache // stores the parts
	fails func() error     // its error, if any, fails a film; may be nil
	helps func()           // runs before Assist; may be nil

	mu     sync.Mutex
	films  []film // in the order of their beginning
	made   int    // parts of all films
	helped int    // parts of other replicas' films
}

// filmLength is the length of the simulated films.
const filmLength = 1234 * time.Millisecond

// film is one call of Render.
type film struct {
	jobID        string
	began, ended time.Time
}

func (e *simulated) rendered() []film {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]film(nil), e.films...)
}

func (e *simulated) Render(ctx context.Context, job engine.Job) (engine.Output, error) {
	folder := filepath.Base(filepath.Dir(job.Dir)) // see Service.workDir
	e.mu.Lock()
	at := len(e.films)
	e.films = append(e.films, film{jobID: folder[:strings.LastIndexByte(folder, '-')], began: time.Now()})
	e.mu.Unlock()
	job.OnPlanned(filmLength)
	var err error
	if e.fails != nil {
		err = e.fails()
	}
	if err == nil {
		err = e.render(ctx, job)
	}
	e.mu.Lock()
	e.films[at].ended = time.Now()
	e.mu.Unlock()
	if err != nil {
		return engine.Output{}, err
	}
	out := engine.Output{Path: filepath.Join(job.Dir, "output.mp4"), Duration: filmLength}
	return out, os.WriteFile(out.Path, []byte("a finished film"), 0o600)
}

func (e *simulated) render(ctx context.Context, job engine.Job) error {
	if e.parts == 0 {
		for percent := range 4 {
			job.OnProgress(25 * percent)
			if err := pause(ctx, e.takes/4); err != nil {
				return err
			}
		}
		return nil
	}
	left := map[string]bool{}
	for _, key := range e.keys() {
		left[key] = true
	}
	if err := job.Coordinator.Announce(ctx, e.keys()); err != nil {
		return err
	}
	for open := true; len(left) > 0; {
		if open {
			made, err := e.take(ctx, job, "", func() { job.OnProgress(100 - 100*len(left)/e.parts) })
			if err != nil {
				return err
			}
			for _, key := range made {
				delete(left, key)
			}
			open = false
			continue
		}
		ended, err := job.Coordinator.Await(ctx, slices.Collect(maps.Keys(left)))
		if err != nil {
			return err
		}
		open = len(ended) == 0
		var group errgroup.Group
		group.SetLimit(8)
		for key, made := range ended {
			delete(left, key)
			group.Go(func() (err error) {
				if made {
					made, err = e.cache.Get(ctx, job.CacheScope, key, filepath.Join(job.Dir, key))
				}
				if !made && err == nil {
					err = e.make(ctx, job, key)
				}
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// take claims and makes one part after another, as the engine does.
func (e *simulated) take(ctx context.Context, job engine.Job, key string, each func()) (made []string, err error) {
	if key == "" {
		key, err = job.Coordinator.Next(ctx, "")
	}
	for key != "" && err == nil {
		if err = e.make(ctx, job, key); err != nil {
			break
		}
		made = append(made, key)
		each()
		key, err = job.Coordinator.Next(ctx, key)
	}
	return made, err
}

func (e *simulated) Assist(ctx context.Context, job engine.Job, claimed string) (int, error) {
	if e.helps != nil {
		e.helps()
	}
	made, err := e.take(ctx, job, claimed, func() {})
	e.mu.Lock()
	defer e.mu.Unlock()
	e.helped += len(made)
	return len(made), err
}

func (e *simulated) Poster(_ context.Context, film, jpeg string) error {
	return os.WriteFile(jpeg, []byte("a poster"), 0o600)
}

// keys are the part keys of a plan. The caches separate them by owner.
func (e *simulated) keys() []string {
	keys := make([]string, e.parts)
	for i := range keys {
		keys[i] = videoPart(i)
	}
	return keys
}

func videoPart(i int) string { return fmt.Sprintf("video-%03d", i) }

func (e *simulated) make(ctx context.Context, job engine.Job, key string) error {
	takes := e.takes
	if key == videoPart(0) {
		takes += e.slowest
		if e.begin != nil {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-e.begin:
			}
		}
	}
	if err := pause(ctx, takes); err != nil {
		return err
	}
	path := filepath.Join(job.Dir, key)
	if err := os.WriteFile(path, []byte("a part"), 0o600); err != nil {
		return err
	}
	e.mu.Lock()
	e.made++
	e.mu.Unlock()
	return e.cache.Put(ctx, job.CacheScope, key, path)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
