// Package separation owns separation jobs: audio in, stems out, paid by credits. It holds the queue, the workers
// that call the provider, the sweeps, the stored stems and their signed URLs.
//
// A job is a row of jobs and one of separations. Every move is one guarded UPDATE of jobs that names the state it comes
// from and, when a worker makes it, the fence of the worker's lease:
//
//	            claim                project id stored
//	QUEUED ─────────────▶ SUBMITTING ─────────────▶ PROCESSING
//	  ▲ │                   │   │                     │   │ stems stored
//	  │ │ stale    dead or  │   │ provider            │   ▼
//	  │ │          stuck    │   │ refused     failed, │  READY
//	  └─┼───────────────────┘   │             timed   │   │ abandoned
//	    ▼                       ▼             out     ▼   ▼
//	  FAILED ◀────────────────────────────────────────┘  DISPOSED
//
// The charge and the insert are one transaction, and so are every move to FAILED and its refund. The provider is asked
// to start (and bill) a job at most once: the worker writes its intent before that call. A job with an intent but no
// project id fails and is refunded, because nobody knows whether the provider received the call.
package separation

import (
	"context"
	"database/sql"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/base/tracing"
	"cutroom/internal/domain/analysis"
	"cutroom/internal/domain/asset"
	"cutroom/internal/domain/separation/price"
	"cutroom/internal/film/media"
	"cutroom/internal/film/media/container"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/upstream/separator"
	"cutroom/internal/work/derived"
	"cutroom/internal/work/job"
	"cutroom/internal/work/quota"
	"cutroom/internal/work/sweep"
)

// The states of a job, as on the wire.
const (
	StateQueued     = "QUEUED"
	StateSubmitting = "SUBMITTING"
	StateProcessing = "PROCESSING"
	StateReady      = "READY"
	StateFailed     = "FAILED"
	StateDisposed   = "DISPOSED"
)

// Media reads and converts sound. It is an interface so that a simulation needs no ffmpeg. [media.Runner] documents the
// methods.
type Media interface {
	Measure(ctx context.Context, path string, kind container.Kind, opts media.MeasureOptions) ([]media.Measured, error)
	DecodedLength(ctx context.Context, path string, kind container.Kind, stream int, limit time.Duration,
		opts media.MeasureOptions) (time.Duration, error)
	Probe(ctx context.Context, path string) (media.Probe, error)
	ProbeWithin(ctx context.Context, path string, opts media.MeasureOptions) (media.Probe, error)
	Encode(ctx context.Context, p media.Pass) (corruptFrames int, err error)
	Count(ctx context.Context, s media.Sound, p media.Pass, to io.Writer) (end time.Duration, err error)
}

// Options configures a Service. Fields are required unless they say what their zero value means.
type Options struct {
	DB       *db.DB
	Renewer  *job.Renewer
	Sweeper  *sweep.Sweeper // removes unneeded objects
	Quota    *quota.Limits  // of an account; nil means no limits
	Store    objectstore.Store
	Media    Media
	Assets   *asset.Service
	Sounds   *analysis.Service // measures the sound of assets
	OnDemand *derived.Maker    // makes missing peaks
	Analyses *media.FairSlots  // for the uploads of each user
	Provider *separator.Client
	// CanWork says how many bytes jobs here may still write, or why this replica must not work now.
	CanWork func(ctx context.Context) (freeBytes int64, err error)
	// WorkDir is a local folder for temporary files.
	WorkDir string

	MaxAudioBytes   int64  // of a file sent to the provider
	PublicBaseURL   string // without a trailing slash
	SigningSecret   string
	SigningPrevious string        // the former secret, under which old links still work; "" if there is none
	URLLifetime     time.Duration // of a stem URL
	JobLifetime     time.Duration // of an ended job
	AbandonAfter    time.Duration // lifetime of uncollected stems
	InFlight        int           // jobs at the provider, over all replicas
	StuckAfter      time.Duration // in SUBMITTING
	PollEvery       time.Duration
	PollTimeout     time.Duration   // in PROCESSING
	BusyWait        time.Duration   // for a busy provider; 0 fails at once
	Tracer          *tracing.Tracer // nil = off
	Observer        job.Observer    // nil counts nothing
	Log             *slog.Logger
}

// Service runs separation jobs. It is safe for concurrent use, on any number of replicas.
type Service struct {
	Options
	jobs   job.Table
	meter  price.Meter
	signer signer
	outage fault.Outage
}

// New returns a Service.
func New(o Options) *Service {
	s := &Service{Options: o, jobs: job.Table{Kind: job.Separation, Prefix: "sep-", QueueLock: TopicQueue,
		DB: o.DB, Quota: o.Quota, Renewer: o.Renewer, Store: o.Store, Folder: o.WorkDir, Log: o.Log, Ended: ended, Unknown: errUnknownJob,
		Tracer: o.Tracer, Observer: o.Observer},
		meter:  price.Meter{Media: o.Media, Slots: o.Analyses, Wait: price.SlotWait, Log: o.Log},
		signer: signer{o.SigningSecret, o.SigningPrevious}}
	s.jobs.Swept = s.cleanUp
	return s
}

// claimedJob is the part of a row that workers need.
type claimedJob struct {
	job.Claim
	SourceKey, SourceName string
	Cut                   sql.NullString // how to cut the source out of an asset
	DurationMs, Credits   int64          // of the source as measured, and what it cost
	ProjectID             sql.NullInt64
	AskedAt, DoneAt       sql.NullInt64 // the provider was asked, and was done
	busyFor               time.Duration // since the provider first refused the job because it was busy
}

// rows are the jobs j with their details d.
const rows = `jobs j JOIN separations d ON d.job_id = j.id`

// selectJob reads what scanJob scans.
const selectJob = `SELECT j.id, j.user_id, j.state, d.source_key, d.source_name, d.cut, j.source_duration_ms, d.credits, d.project_id,
	j.asked_at, d.provider_done_at, j.attempts, j.fence, COALESCE(now_ms() - d.busy_since, 0) FROM ` + rows + ` WHERE `

func scanJob(row db.Scanner) (claimedJob, error) {
	var j claimedJob
	var busyMs int64
	err := row.Scan(&j.ID, &j.UserID, &j.State, &j.SourceKey, &j.SourceName, &j.Cut, &j.DurationMs, &j.Credits,
		&j.ProjectID, &j.AskedAt, &j.DoneAt, &j.Attempts, &j.Fence, &busyMs)
	j.busyFor = time.Duration(busyMs) * time.Millisecond
	return j, err
}

// sourceKey is where a job's upload waits for the provider.
func sourceKey(jobID, ext string) string { return "uploads/" + jobID + "/source." + ext }

// folder is the prefix of a job's results.
func folder(jobID string) string { return "separation/" + jobID + "/" }

// stemKey is where a stem is kept. Objects made from it on demand have the extension peaks or wav.
func stemKey(jobID, stemID, ext string) string { return folder(jobID) + stemID + "." + ext }

// The stem identifiers.
const (
	stemVoice      = "voice_all"
	stemBackground = "background"
	speakerPrefix  = "speaker_"
)

// label is the name shown for a stem.
func label(stemID string) string {
	switch stemID {
	case stemVoice:
		return "All speakers"
	case stemBackground:
		return "Background audio"
	}
	n, _ := strconv.Atoi(strings.TrimPrefix(stemID, speakerPrefix))
	return "Speaker " + strconv.Itoa(n+1)
}

// errUnknownJob is the answer for a job that does not exist and for another user's job, so that clients cannot tell
// them apart.
var errUnknownJob = fault.NotFoundf("separation job not found")

// To a client, a project that failed or was not finished in time looks like a 5xx of the provider.
const (
	sentenceInternal = "Internal server error"
	sentenceNoAnswer = "Provider service unavailable"
)

// The failures that have no status from the provider.
var (
	errInternal       = fault.Failedf(fault.Unexplained, sentenceInternal)
	errSlow           = fault.Failedf(fault.TimedOut, sentenceInternal) // one of our programs timed out
	errUnreadable     = fault.Failedf(fault.SourceUnreadable, "The sound of the asset cannot be decoded")
	errTooLarge       = fault.Failedf(fault.SourceTooLarge, "The asset takes too much time or memory to cut")
	errNoSource       = fault.Failedf(fault.SourceMissing, sentenceInternal)
	errStale          = fault.Failedf(fault.Stale, "The separation could not be started in time")
	errInterrupted    = fault.Failedf(fault.Interrupted, sentenceNoAnswer)
	errTimedOut       = fault.Failedf(fault.TimedOut, sentenceNoAnswer)
	errProviderFailed = fault.Failedf(fault.ProviderRejected, sentenceNoAnswer)
	errPriceMismatch  = fault.Failedf(fault.PriceMismatch, "The audio is longer than the length that was charged")
)
