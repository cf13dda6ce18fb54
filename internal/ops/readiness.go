// Whether this replica can work, for /readyz, for the workers' claims and as metrics: disk, folder, store, database and
// ffmpeg in its confinement.

package ops

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/storage/disk"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/storage/staging"
	"cutroom/internal/work/job"
)

// Storage probes are cached, because a write to a bucket costs money.
const (
	probeAge      = 20 * time.Second // for load balancers and metrics, which ask every few seconds
	claimProbeAge = 2 * time.Second  // for a replica that is about to claim a job
)

// slowStart is how long after its last start ffmpeg still counts as able to start, even if starting it takes longer
// than a probe waits. A machine whose cores are all busy is slow, not broken; an ffmpeg that hangs for longer than this
// is broken.
const slowStart = time.Minute

// The reasons why a replica cannot work, each with a sentence for operators. The log has the cause.
const (
	reasonDatabase = "database"
	reasonWrites   = "database_writes"
	reasonDisk     = "disk"
	reasonFolder   = "folder"
	reasonStore    = "store"
	reasonFFmpeg   = "ffmpeg"
)

var reasons = []struct{ name, sentence string }{
	{reasonDatabase, "the database does not answer"},
	{reasonWrites, "the database answers reads but accepts no writes"},
	{reasonDisk, "the storage folder is short of space"},
	{reasonFolder, "the storage folder takes no files"},
	{reasonStore, "the object store takes no files"},
	{reasonFFmpeg, "ffmpeg does not start"},
}

// ReadinessOptions configures what Readiness checks.
type ReadinessOptions struct {
	DB          *db.DB
	Store       objectstore.Store
	Uploads     *staging.Area
	StartFFmpeg func(ctx context.Context) error // nil in a process that runs no ffmpeg
	MinFree     int64                           // bytes of free disk below which uploads fail
	DiskID      string                          // part of the name of the object that a probe writes and deletes
	Replica     string                          // the row that a check of the database writes
	Log         *slog.Logger
}

// Readiness decides whether this replica can work: the disk has space, the local folder and the object store accept a
// file, and ffmpeg starts in its jail. Workers ask it before they claim a job. Load balancers and metrics get the same
// result, plus a check of the database.
type Readiness struct {
	ReadinessOptions

	mu       sync.Mutex
	probedAt time.Time
	probed   map[string]error // by reason; without disk and database
	ffmpegAt time.Time        // when ffmpeg last started

	outage fault.Outage // by reason
}

// NewReadiness returns a handler for /readyz, which is also a Prometheus collector. The service has just started
// ffmpeg: otherwise it would not have got this far.
func NewReadiness(o ReadinessOptions) *Readiness {
	return &Readiness{ReadinessOptions: o, ffmpegAt: time.Now()}
}

// CanWork returns how many bytes this replica's jobs may still write, or an error that says why it must not claim any.
func (r *Readiness) CanWork(ctx context.Context) (freeBytes int64, err error) {
	free, failures := r.check(ctx, claimProbeAge)
	for reason, cause := range failures {
		err = errors.Join(err, fmt.Errorf("%s: %w", reason, cause))
	}
	return free, err
}

// Offers returns the function that reports to other replicas how many jobs this one may run, and how many bytes
// they may write.
func (r *Readiness) Offers(slots int) func(ctx context.Context) (int, int64) {
	return func(ctx context.Context) (int, int64) {
		free, failures := r.check(ctx, probeAge)
		if len(failures) > 0 {
			return 0, free
		}
		return slots, free
	}
}

// check returns the free bytes and the failures by reason. It always reads the free space; the probe may be as old as
// maxAge.
func (r *Readiness) check(ctx context.Context, maxAge time.Duration) (free int64, failures map[string]error) {
	failures = maps.Clone(r.probe(ctx, maxAge))
	free, err := r.Uploads.Free()
	if err != nil {
		failures[reasonFolder] = err
	}
	if free -= r.MinFree; err == nil && free < 0 {
		failures[reasonDisk] = fmt.Errorf("%d MB less than the reserve: %w", -free>>20, disk.ErrFull)
	}
	r.logChanges(failures, reasonDisk, reasonFolder, reasonStore, reasonFFmpeg)
	return max(0, free), failures
}

// probe writes a small file to the local folder and to the object store, and starts ffmpeg, unless the last probe is
// younger than maxAge.
func (r *Readiness) probe(ctx context.Context, maxAge time.Duration) map[string]error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.probedAt.IsZero() && time.Since(r.probedAt) < maxAge {
		return r.probed
	}
	// Callers share the result, so one caller's context must not cancel it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	var ffmpeg errgroup.Group
	if r.StartFFmpeg != nil {
		ffmpeg.Go(func() error { return r.StartFFmpeg(ctx) })
	}
	failures := map[string]error{}
	if reason, err := r.writeFile(ctx); disk.IsFull(err) {
		failures[reasonDisk] = err
	} else if err != nil {
		failures[reason] = err
	}
	if err := ffmpeg.Wait(); err == nil {
		r.ffmpegAt = time.Now()
	} else if !errors.Is(err, context.DeadlineExceeded) || time.Since(r.ffmpegAt) >= slowStart {
		failures[reasonFFmpeg] = err
	}
	r.probed, r.probedAt = failures, time.Now()
	return failures
}

func (r *Readiness) writeFile(ctx context.Context) (reason string, err error) {
	batch, err := r.Uploads.Batch()
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
	key := "ready/" + r.DiskID
	if err := r.Store.Put(ctx, key, file.Path, "text/plain"); err != nil {
		return reasonStore, fmt.Errorf("write object: %w", err)
	}
	return reasonStore, r.Store.Delete(ctx, key)
}

// logChanges logs a failure of one of the reasons when it begins, once a minute while it lasts, and when it ends.
func (r *Readiness) logChanges(failures map[string]error, reasons ...string) {
	for _, reason := range reasons {
		if err := failures[reason]; err != nil {
			r.outage.Log(r.Log, slog.LevelWarn, reason, "not ready: this replica claims no jobs", "reason", reason, "err", err)
		} else {
			r.outage.Over(r.Log, reason, "ready again", "reason", reason)
		}
	}
}

// checkAll returns all failures, including those of the database.
func (r *Readiness) checkAll(ctx context.Context) map[string]error {
	reason, err := r.checkDatabase(ctx)
	_, failures := r.check(ctx, probeAge)
	if err != nil {
		failures[reason] = err
	}
	r.logChanges(failures, reasonDatabase, reasonWrites)
	return failures
}

// checkDatabase commits a write. If that fails, it finds out whether reads work.
func (r *Readiness) checkDatabase(ctx context.Context) (reason string, err error) {
	write, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err = job.CheckWrites(write, r.DB, r.Replica); err == nil {
		return "", nil
	}
	read, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if r.DB.Answers(read) == nil {
		return reasonWrites, err
	}
	return reasonDatabase, err
}

// ServeHTTP implements http.Handler: 200 when the replica can serve.
func (r *Readiness) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	failures := r.checkAll(req.Context())
	var sentences []string
	for _, reason := range reasons {
		if err := failures[reason.name]; err != nil {
			sentences = append(sentences, reason.sentence+certificateCause(err))
		}
	}
	if len(sentences) > 0 {
		writeStatus(w, http.StatusServiceUnavailable, strings.Join(sentences, "; "))
		return
	}
	serveHealthy(w, req)
}

// certificateCause returns why a certificate was refused, if that caused the failure.
func certificateCause(err error) string {
	if refused, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return ", because its certificate is refused: " + refused.Err.Error()
	}
	return ""
}

func gauge(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

var (
	notReadyDesc = prometheus.NewDesc("cutroom_not_ready",
		"1 while this replica takes no jobs for the reason.", []string{"reason"}, nil)
	freeDiskDesc = prometheus.NewDesc("cutroom_free_disk_bytes",
		"Disk that this replica may still fill, the reserve left out.", nil, nil)
)

// Describe implements prometheus.Collector.
func (r *Readiness) Describe(ch chan<- *prometheus.Desc) { ch <- notReadyDesc; ch <- freeDiskDesc }

// Collect implements prometheus.Collector.
func (r *Readiness) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // Collect gets no context
	defer cancel()
	failures := r.checkAll(ctx)
	for _, reason := range reasons {
		ch <- prometheus.MustNewConstMetric(notReadyDesc, prometheus.GaugeValue, gauge(failures[reason.name] != nil), reason.name)
	}
	if free, err := r.Uploads.Free(); err == nil {
		ch <- prometheus.MustNewConstMetric(freeDiskDesc, prometheus.GaugeValue, float64(max(0, free-r.MinFree)))
	}
}
