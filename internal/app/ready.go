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

	"github.com/prometheus/client_golang/prometheus"

	"cutroom/internal/db"
	"cutroom/internal/job"
	"cutroom/internal/objectstore"
	"cutroom/internal/staging"
)

const (
	// lookEvery is how old a check of the storage may be for probes every few
	// seconds: a write to a bucket costs money.
	lookEvery = 20 * time.Second
	// claimLook is the same for a replica that is about to take a job.
	claimLook = 2 * time.Second
)

// The reasons why a replica cannot work, each with what it tells operators. The
// log says why.
const (
	reasonDatabase = "database"
	reasonWrites   = "database_writes"
	reasonDisk     = "disk"
	reasonFolder   = "folder"
	reasonStore    = "store"
	reasonFFmpeg   = "ffmpeg"
)

var reasons = []struct{ name, text string }{
	{reasonDatabase, "the database does not answer"},
	{reasonWrites, "the database answers reads but takes no writes"},
	{reasonDisk, "the storage folder is short of space"},
	{reasonFolder, "the storage folder takes no files"},
	{reasonStore, "the object store takes no files"},
	{reasonFFmpeg, "ffmpeg does not start"},
}

// readiness decides whether this replica can work: its disk has space, local
// folder and object store take a file, and ffmpeg starts within its
// confinement. It is asked before a job is taken; load balancers and metrics
// see the same, and the database besides.
type readiness struct {
	db      *db.DB
	store   objectstore.Store
	uploads *staging.Area
	ffmpeg  func(ctx context.Context) error // nil when it starts; itself nil where none is needed
	minFree int64                           // bytes of disk below which uploads will fail
	key     string                          // of the object that is written and deleted
	replica string                          // whose row a check of the database writes
	log     *slog.Logger

	mu     sync.Mutex
	looked time.Time
	found  map[string]error // by reason, as of looked; without disk and database

	outage job.Outage // by reason
}

// canWork returns how many bytes jobs of this replica may still write, or why it
// must not take any.
func (c *readiness) canWork(ctx context.Context) (freeBytes int64, err error) {
	free, wrong := c.check(ctx, claimLook)
	for reason, why := range wrong {
		err = errors.Join(err, fmt.Errorf("%s: %w", reason, why))
	}
	return free, err
}

// offers is what the replica tells the others: how many jobs it may run.
func (c *readiness) offers(slots int) func(ctx context.Context) (int, int64) {
	return func(ctx context.Context) (int, int64) {
		free, wrong := c.check(ctx, lookEvery)
		if len(wrong) > 0 {
			return 0, free
		}
		return slots, free
	}
}

// check returns the free bytes and what is wrong. The disk is looked at each
// time; what costs something may have been looked at as long ago as age.
func (c *readiness) check(ctx context.Context, age time.Duration) (free int64, wrong map[string]error) {
	wrong = map[string]error{}
	for reason, err := range c.look(ctx, age) {
		wrong[reason] = err
	}
	free, err := c.uploads.Free()
	if err != nil {
		wrong[reasonFolder] = err
	}
	if free -= c.minFree; err == nil && free < 0 {
		wrong[reasonDisk] = fmt.Errorf("%d MB less than the reserve: %w", -free>>20, staging.ErrNoSpace)
	}
	c.tell(wrong, reasonDisk, reasonFolder, reasonStore, reasonFFmpeg)
	return max(0, free), wrong
}

// look writes a small file locally, and it to the object store, and starts
// ffmpeg, unless that was done lately.
func (c *readiness) look(ctx context.Context, age time.Duration) map[string]error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.looked.IsZero() && time.Since(c.looked) < age {
		return c.found
	}
	// The result is shared, so it must not end with the request of one caller.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	started := make(chan error, 1)
	if c.ffmpeg == nil {
		started <- nil
	} else {
		go func() { started <- c.ffmpeg(ctx) }()
	}
	found := map[string]error{}
	if reason, err := c.write(ctx); errors.Is(err, staging.ErrNoSpace) {
		found[reasonDisk] = err
	} else if err != nil {
		found[reason] = err
	}
	if err := <-started; err != nil {
		found[reasonFFmpeg] = err
	}
	c.found, c.looked = found, time.Now()
	return found
}

func (c *readiness) write(ctx context.Context) (reason string, err error) {
	batch, err := c.uploads.Batch()
	if err != nil {
		return reasonFolder, err
	}
	defer func() {
		if cerr := batch.Close(); err == nil && cerr != nil {
			reason, err = reasonFolder, cerr
		}
	}()
	file, err := batch.Receive("ready", "", strings.NewReader("ready"), 16)
	if err != nil {
		return reasonFolder, err
	}
	if err := c.store.Put(ctx, c.key, file.Path, "text/plain"); err != nil {
		return reasonStore, fmt.Errorf("write object: %w", err)
	}
	return reasonStore, c.store.Delete(ctx, c.key)
}

// tell logs what is wrong among the reasons, when it begins, once a minute while
// it lasts, and when it is over.
func (c *readiness) tell(wrong map[string]error, among ...string) {
	for _, reason := range among {
		if err, is := wrong[reason]; is {
			c.outage.Log(c.log, slog.LevelWarn, reason, "not ready: no job is taken", "of", reason, "err", err)
		} else {
			c.outage.Over(c.log, reason, "ready again", "of", reason)
		}
	}
}

// all is what is wrong, the database included.
func (c *readiness) all(ctx context.Context) map[string]error {
	reason, err := c.checkDatabase(ctx)
	_, wrong := c.check(ctx, lookEvery)
	if err != nil {
		wrong[reason] = err
	}
	c.tell(wrong, reasonDatabase, reasonWrites)
	return wrong
}

// checkDatabase commits a write, and if that fails finds out whether reads work.
func (c *readiness) checkDatabase(ctx context.Context) (reason string, err error) {
	write, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err = job.CheckWrites(write, c.db, c.replica); err == nil {
		return "", nil
	}
	read, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if c.db.Ping(read) == nil {
		return reasonWrites, err
	}
	return reasonDatabase, err
}

// ServeHTTP implements http.Handler: 200 when the replica can serve.
func (c *readiness) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	wrong := c.all(r.Context())
	var texts []string
	for _, reason := range reasons {
		if wrong[reason.name] != nil {
			texts = append(texts, reason.text)
		}
	}
	if len(texts) > 0 {
		answer(w, http.StatusServiceUnavailable, strings.Join(texts, "; "))
		return
	}
	healthy(w, r)
}

// healthy says that the process answers.
func healthy(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") }

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"status": text}) // whoever asked has gone
}

var (
	notReadyDesc = prometheus.NewDesc("cutroom_not_ready", "1 while this replica takes no jobs for the reason.", []string{"reason"}, nil)
	freeDiskDesc = prometheus.NewDesc("cutroom_free_disk_bytes", "Disk that this replica may still fill, the reserve left out.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *readiness) Describe(ch chan<- *prometheus.Desc) { ch <- notReadyDesc; ch <- freeDiskDesc }

// Collect implements prometheus.Collector.
func (c *readiness) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // a scrape brings no context
	defer cancel()
	wrong := c.all(ctx)
	for _, reason := range reasons {
		value := 0.0
		if wrong[reason.name] != nil {
			value = 1
		}
		ch <- prometheus.MustNewConstMetric(notReadyDesc, prometheus.GaugeValue, value, reason.name)
	}
	if free, err := c.uploads.Free(); err == nil {
		ch <- prometheus.MustNewConstMetric(freeDiskDesc, prometheus.GaugeValue, float64(max(0, free-c.minFree)))
	}
}
