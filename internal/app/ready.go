package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"cutroom/internal/db"
	"cutroom/internal/objectstore"
	"cutroom/internal/staging"
)

// probeEvery is how long a look at the storage holds: a write to a bucket costs
// money, and what asks for readiness asks every few seconds.
const probeEvery = 20 * time.Second

// readiness answers 200 when this replica can serve: the database answers, and
// both the local folder and the object store take a file. It says what is
// wrong, and never why: the log does.
type readiness struct {
	db      *db.DB
	store   objectstore.Store
	uploads *staging.Area
	minFree int64  // bytes of disk below which uploads will fail
	key     string // of the object that is written and deleted
	log     *slog.Logger

	mu     sync.Mutex
	probed time.Time
	wrong  []string // as of probed
}

// ServeHTTP implements http.Handler.
func (c *readiness) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 3*time.Second)
	defer cancel()
	var wrong []string
	if err := c.db.Ping(ctx); err != nil {
		c.log.Warn("not ready", "of", "database", "err", err)
		wrong = append(wrong, "the database does not answer")
	}
	wrong = append(wrong, c.storage(r.Context())...)
	status, text := http.StatusOK, "ok"
	if len(wrong) > 0 {
		status, text = http.StatusServiceUnavailable, strings.Join(wrong, "; ")
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"status": text}) // whoever asked has gone
}

// storage looks at the storage, or remembers a recent look.
func (c *readiness) storage(ctx context.Context) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.probed.IsZero() && time.Since(c.probed) < probeEvery {
		return c.wrong
	}
	// What was found counts for others too, so it must not depend on whether
	// this asker waits for it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	c.wrong = nil
	if err := c.probe(ctx); err != nil {
		c.log.Warn("not ready", "of", "storage", "err", err)
		what := "the object store takes no files"
		if errors.Is(err, errUploads) {
			what = "the storage folder takes no files"
		}
		if errors.Is(err, staging.ErrNoSpace) {
			what = "the storage folder is short of space"
		}
		c.wrong = []string{what}
	}
	c.probed = time.Now()
	return c.wrong
}

// errUploads says that the local folder is what failed.
var errUploads = errors.New("uploads folder")

// probe writes a small file locally, and it to the object store.
func (c *readiness) probe(ctx context.Context) (err error) {
	batch, err := c.uploads.Batch()
	if err != nil {
		return fmt.Errorf("%w: %w", errUploads, err)
	}
	defer func() { err = errors.Join(err, batch.Close()) }()
	file, err := batch.Receive("ready", "", strings.NewReader("ready"), 16)
	if err != nil {
		return fmt.Errorf("%w: %w", errUploads, err)
	}
	free, err := c.uploads.Free()
	if err != nil {
		return fmt.Errorf("%w: %w", errUploads, err)
	}
	if free < c.minFree {
		return fmt.Errorf("%w: %d MB free: %w", errUploads, free>>20, staging.ErrNoSpace)
	}
	if err := c.store.Put(ctx, c.key, file.Path, "text/plain"); err != nil {
		return fmt.Errorf("write object: %w", err)
	}
	return c.store.Delete(ctx, c.key)
}
