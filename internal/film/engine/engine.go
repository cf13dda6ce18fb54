package engine

import (
	"cmp"
	"log/slog"
	"runtime"
	"time"

	"cutroom/internal/film/media"
	"cutroom/internal/film/timeline"
	"cutroom/internal/storage/disk"
)

// Config configures an Engine.
type Config struct {
	Media *media.Runner // required
	Cores int           // cores to use for one render; 0 = all cores of the machine
	Cache PartCache     // nil keeps nothing between renders

	Limits       Limits        // zero fields have generous defaults
	FinalTimeout time.Duration // of the final pass; 0 = 30 minutes
}

// Engine renders timelines. It is safe for concurrent use. The caller limits how many renders run at once.
type Engine struct {
	cfg     Config
	scratch *scratch
}

// New returns an Engine.
func New(cfg Config) *Engine {
	cfg.Cores = cmp.Or(cfg.Cores, runtime.GOMAXPROCS(0))
	cfg.FinalTimeout = cmp.Or(cfg.FinalTimeout, 30*time.Minute)
	cfg.Limits = cfg.Limits.withDefaults()
	return &Engine{cfg, newScratch(disk.Free)}
}

func (e *Engine) machine() Machine {
	return Machine{Cores: e.cfg.Cores, MemoryBytes: int64(e.cfg.Cores) * memoryPerCore, ProcessBytes: e.cfg.Media.MaxMemory()}
}

// Source is the local file behind a key of the timeline. Keys with the same content share one completed Source.
type Source struct {
	Path   string // absolute; the engine only reads it
	SHA256 string // hex of the content

	info *Info
	user string // the first field that uses it, for error messages: "segments[0]"
}

// Job is one render.
type Job struct {
	// Dir is the absolute path of the job's private working folder, which must exist. The engine writes the output
	// there and overwrites files of an earlier attempt; the caller removes the folder.
	Dir string

	Timeline timeline.Timeline // must have passed Validate
	Sources  map[string]Source // a file for every key of Timeline.SourceKeys

	// CacheScope separates users in the cache: a part is found only in the scope in which it was made.
	CacheScope string

	// Coordinator shares the video parts with other machines. Nil makes all parts here.
	Coordinator PartCoordinator

	Log *slog.Logger // nil discards

	// OnPlanned receives the film's length before any part is made. May be nil.
	OnPlanned func(length time.Duration)

	// OnProgress receives the percentage done, 0..99, whenever it grows, from one goroutine at a time. It must return
	// quickly. May be nil.
	OnProgress func(percent int)
}

// Output is a finished render.
type Output struct {
	Path      string // in Job.Dir: output.mp4 or output.m4a
	SizeBytes int64
	Duration  time.Duration // of the timeline: Frames at FrameRate

	Frames        int64          // video frames; in an audio-only render, steps of its time grid
	FrameRate     media.Rational // exact
	Width, Height int            // 0 in an audio-only render
	Samples       int64          // sound, per channel at 48 kHz
	Stats         Stats
}

// Stats contains what a render cost and what the cache saved.
type Stats struct {
	VideoParts, VideoPartsReused int
	FramesEncoded                int64

	Analyse time.Duration // wall time of each stage
	Parts   time.Duration // video parts and sounds together
	Final   time.Duration
}
