// Package render owns render jobs: segments, music and stems in, one mp4 or
// m4a out. It holds the queue, the workers that run the engine, the cached
// inputs, the outputs and their sweeps. How a film is made is the engine's
// matter.
//
// A job is one row, and every move is a guarded UPDATE that names the state it
// comes from and, when a worker makes it, the fence of the worker's lease:
//
//	          claim                 output stored
//	PENDING ─────────▶ PROCESSING ────────────────▶ COMPLETED
//	   ▲                 │     │
//	   └─────────────────┘     └───▶ FAILED
//	   service stopped,         bad media, time-out,
//	   replica cannot work      third worker lost
//
// A PROCESSING job whose worker died is claimed again by any replica that can
// reach its files, at most three times in all, and goes on from the parts that
// are finished.
package render

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"cutroom/internal/asset"
	"cutroom/internal/db"
	"cutroom/internal/engine"
	"cutroom/internal/fault"
	"cutroom/internal/job"
	"cutroom/internal/media"
	"cutroom/internal/objectstore"
	"cutroom/internal/ondemand"
	"cutroom/internal/separation"
	"cutroom/internal/sweep"
)

// The states of a job, as on the wire.
const (
	StatePending    = "PENDING"
	StateProcessing = "PROCESSING"
	StateCompleted  = "COMPLETED"
	StateFailed     = "FAILED"
)

// topic wakes the workers of every replica.
const topic = db.ForWorkers + "render"

// maxAttempts bounds how many workers may die over one job.
const maxAttempts = 3

// table is what a lease of ours is on.
const table = "render_jobs"

// Engine makes the films. It is an interface so that the queue can be tested
// and measured with work that takes a known time; see [engine.Engine], the one
// that renders, for what the methods promise.
type Engine interface {
	Render(ctx context.Context, job engine.Job) (engine.Output, error)
	Assist(ctx context.Context, job engine.Job, claimed string) (made int, err error)
	Poster(ctx context.Context, film, jpeg string) error
}

// Options configures a Service.
type Options struct {
	DB      *db.DB
	Renewer *job.Renewer
	Store   objectstore.Store
	// Bucket is the same store when it is a bucket, else nil: then assets by
	// reference are off and outputs are streamed instead of redirected to.
	Bucket      *objectstore.Bucket
	Assets      *asset.Service
	Separations *separation.Service
	Sweeper     *sweep.Sweeper // removes what is needed no more
	Engine      Engine
	Slots       *media.Slots    // media-processing jobs of this process
	OnDemand    *ondemand.Maker // of the posters of films that have none
	// CanWork says how many bytes jobs here may still write, or why this replica
	// must not work now.
	CanWork func(ctx context.Context) (freeBytes int64, err error)
	// NodeID names the disk that Store writes to, or is "" for a bucket.
	NodeID  string
	WorkDir string // local folder for jobs in the making

	Timeout        time.Duration // of a job, from its first attempt to its end
	InputLifetime  time.Duration // of a cached input, since its last use
	JobLifetime    time.Duration // of an ended job
	OutputLifetime time.Duration // since completion or the last download
	SignedURLLife  time.Duration // of presigned downloads
	// EraseCaches removes what local caches hold of a user.
	EraseCaches func(ctx context.Context, userID string) error
	Log         *slog.Logger
}

// Service runs render jobs. It is safe for concurrent use, on any number of
// replicas.
type Service struct {
	Options
	db  *db.DB
	log *slog.Logger
	// assisting ends the help for others that one slot at most gives, or is nil.
	assisting atomic.Pointer[context.CancelFunc]
	fleet     fleet
}

// New returns a Service.
func New(o Options) *Service { return &Service{Options: o, db: o.DB, log: o.Log} }

// claimedJob is the part of a row that a worker needs.
type claimedJob struct {
	ID, UserID string
	From       string // the replica that was lost over it, or ""
	Spec       spec
	Attempts   int
	Fence      int64
	Progress   int
	Deadline   time.Time
}

func (j claimedJob) lease() job.Lease { return job.Lease{Table: table, ID: j.ID, Fence: j.Fence} }

// uploadKey is where the n-th uploaded part of a job waits for its worker.
func uploadKey(jobID string, n int) string { return fmt.Sprintf("uploads/%s/part_%d", jobID, n) }

// outputKey is where a job's film is kept.
func outputKey(jobID, ext string) string { return fmt.Sprintf("render/%s/%s.%s", jobID, jobID, ext) }

// posterKey is where the poster of a job's film is kept.
func posterKey(jobID string) string { return outputKey(jobID, "jpg") }

// inputKey is where a cached input is kept.
func inputKey(userID, sha256 string) string { return "inputs/" + userID + "/" + sha256 }

// errUnknownJob answers for a job that does not exist and for one that belongs
// to somebody else: the two cannot be told apart.
var errUnknownJob = fault.NotFoundf("render job not found")

// What the client reads of a job that failed for a reason of ours.
var (
	errInternal    = fault.Failedf(fault.Unexplained, "The video could not be rendered because of an internal error")
	errSlow        = fault.Failedf(fault.TimedOut, "%s", errInternal.Sentence) // a program of ours, three times
	errNoRoom      = fault.Failedf(fault.Stale, "The video could not be rendered: the service has been short of disk space for too long")
	errNoNode      = fault.Failedf(fault.Stale, "The video could not be rendered: the machine that holds its files has been away for too long")
	errInterrupted = fault.Failedf(fault.Interrupted, "The video could not be rendered: the service was interrupted too often")
)
