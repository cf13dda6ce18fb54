// Package render owns render jobs: segments, music and stems in, one mp4 or m4a out. It holds the queue, the workers,
// the cached inputs, the outputs and their sweeps. The engine knows how a film is made.
//
// A job is a row of jobs and one of renders, and every move is a guarded UPDATE that names the state it comes from and,
// when a worker makes it, the fence of the worker's lease:
//
//	          claim                 output stored
//	PENDING ─────────▶ PROCESSING ────────────────▶ COMPLETED
//	   ▲                 │     │
//	   └─────────────────┘     └───▶ FAILED
//	   worker died,             bad media, time-out,
//	   service stopped,         third worker lost
//	   replica cannot work
//
// The next worker continues with the finished parts.
package render

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/base/tracing"
	"cutroom/internal/domain/asset"
	"cutroom/internal/domain/separation"
	"cutroom/internal/film/engine"
	"cutroom/internal/film/media"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/work/derived"
	"cutroom/internal/work/events"
	"cutroom/internal/work/job"
	"cutroom/internal/work/quota"
	"cutroom/internal/work/sweep"
)

// The states of a job, as on the wire.
const (
	StatePending    = "PENDING"
	StateProcessing = "PROCESSING"
	StateCompleted  = "COMPLETED"
	StateFailed     = "FAILED"
)

// Engine makes the films. It is an interface so that tests and benchmarks of the queue can use work that takes a known
// time. [engine.Engine] documents the methods.
type Engine interface {
	Render(ctx context.Context, job engine.Job) (engine.Output, error)
	Assist(ctx context.Context, job engine.Job, claimed engine.Part) (made int, err error)
	Poster(ctx context.Context, film, jpeg string) error
}

// Options configures a Service.
type Options struct {
	DB      *db.DB
	Renewer *job.Renewer
	Store   objectstore.Store
	// Bucket is the same store if that is a bucket. Without a bucket, assets by reference are off, and downloads are
	// streamed instead of redirected.
	Bucket      *objectstore.Bucket
	Assets      *asset.Service
	Separations *separation.Service
	Sweeper     *sweep.Sweeper // removes unneeded objects
	Quota       *quota.Limits  // of an account; nil means no limits
	Engine      Engine
	Slots       *media.Slots   // media-processing jobs of this process
	OnDemand    *derived.Maker // makes missing posters
	// CanWork returns how many bytes jobs here may still write, or why this replica must not work now, which it logs.
	CanWork func(ctx context.Context) (freeBytes int64, err error)
	WorkDir string // holds the work folders of running jobs

	Timeout        time.Duration // of a job, from its first attempt to its end
	InputLifetime  time.Duration // of a cached input, since its last use
	JobLifetime    time.Duration // of an ended job
	OutputLifetime time.Duration // since completion or the last download
	SignedURLLife  time.Duration // of presigned downloads
	// EraseCaches removes what local caches hold of a user.
	EraseCaches func(ctx context.Context, userID string) error
	Tracer      *tracing.Tracer // nil = off
	Observer    job.Observer    // also called for the stages "fetch", "analyse", "parts", "final" and "store"
	Log         *slog.Logger
}

// Service runs render jobs. It is safe for concurrent use, on any number of replicas.
type Service struct {
	Options
	jobs job.Table
	// assisting stops the one slot that makes parts for another replica's render, or is nil.
	assisting atomic.Pointer[context.CancelFunc]
	allSlots  atomic.Int64 // of all replicas, when a job last waited
}

// New returns a Service.
func New(o Options) *Service {
	jobs := table(o.DB)
	jobs.Renewer, jobs.Store, jobs.Folder, jobs.Quota = o.Renewer, o.Store, o.WorkDir, o.Quota
	jobs.Log, jobs.Tracer, jobs.Observer = o.Log, o.Tracer, o.Observer
	return &Service{Options: o, jobs: jobs}
}

// table returns what the moves of renders need.
func table(d *db.DB) job.Table {
	return job.Table{Kind: job.Render, Prefix: "rnd-", DB: d, Ended: ended, Line: keepLine, Unknown: errUnknownJob}
}

// ended runs in the transaction that completes or fails a render.
func ended(ctx context.Context, tx *db.Tx, e job.End) error {
	if err := release(ctx, tx, e.ID); err != nil || e.Deleted {
		return err
	}
	if e.State == StateFailed {
		if err := dropOldSpecs(ctx, tx, e.UserID); err != nil {
			return err
		}
	}
	what := events.RenderFailed
	if e.State == StateCompleted {
		what = events.RenderCompleted
	}
	return events.Record(ctx, tx, events.Event{Type: what, JobID: e.ID, UserID: e.UserID, ErrorCode: string(e.Reason)})
}

// release ends the job's holds, so that the sweeps may remove what only this job still needed, and forgets its parts.
func release(ctx context.Context, tx *db.Tx, jobID string) error {
	if _, err := tx.Exec(ctx, `DELETE FROM render_parts WHERE job_id = $1`, jobID); err != nil {
		return fmt.Errorf("forget parts: %w", err)
	}
	return job.Release(ctx, tx, jobID)
}

// claimedJob is the part of a row that a worker needs.
type claimedJob struct {
	job.Claim
	Spec     spec
	Progress int
	Deadline time.Time
}

// uploadKey is where the n-th uploaded part of a job waits for its worker.
func uploadKey(jobID string, n int) string { return fmt.Sprintf("uploads/%s/part_%d", jobID, n) }

// outputKey is where a job's film is kept.
func outputKey(jobID, ext string) string { return fmt.Sprintf("render/%s/%s.%s", jobID, jobID, ext) }

// posterKey is where the poster of a job's film is kept.
func posterKey(jobID string) string { return outputKey(jobID, "jpg") }

// inputKey is where a cached input is kept.
func inputKey(userID, sha256 string) string { return "inputs/" + userID + "/" + sha256 }

// errUnknownJob is the answer for a job that does not exist and for another user's job, so that clients cannot tell
// them apart.
var errUnknownJob = fault.NotFoundf("render job not found")

// The failures for which the service is to blame.
var (
	errInternal    = fault.Failedf(fault.Unexplained, "The video could not be rendered because of an internal error")
	errSlow        = fault.Failedf(fault.TimedOut, "%s", errInternal.Sentence) // one of our programs, three times
	errNoRoom      = fault.Failedf(fault.Stale, "The video could not be rendered: the service has been short of disk space for too long")
	errInterrupted = fault.Failedf(fault.Interrupted, "The video could not be rendered: the service was interrupted too often")
)
