package media

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"cutroom/internal/media/confine"
)

// Defaults of Config.
const (
	defaultMaxFileBytes   = 16 << 30
	defaultMaxPixels      = 8192 * 4320
	defaultProbeTimeout   = 30 * time.Second
	defaultMeasureTimeout = 5 * time.Minute
	// pipeGrace is how long what a process wrote may take to arrive after its end.
	pipeGrace = 5 * time.Second
)

// Config says where the binaries are and what a pass may consume.
type Config struct {
	FFmpeg, FFprobe string // paths or names looked up in PATH; default "ffmpeg" and "ffprobe"

	MaxMemoryBytes int64 // private memory of one process; default DefaultMaxMemory()
	MaxFileBytes   int64 // largest file one process may write; default 16 GiB
	MaxPixels      int64 // width x height of any frame that is decoded, whatever the header said; default 8192x4320

	ProbeTimeout   time.Duration // of one Probe; default 30 s
	MeasureTimeout time.Duration // of one Measure; default 5 min

	Log *slog.Logger // nil discards
}

// DefaultMaxMemory is three quarters of the machine's memory, between 1 and 8
// GiB. Encoding 3840x2160 with the slow preset was seen to take 2 GiB.
func DefaultMaxMemory() int64 {
	const least, most = 1 << 30, 8 << 30
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return most / 2
	}
	return min(max(int64(info.Totalram)*int64(info.Unit)/4*3, least), most)
}

// Runner runs ffmpeg and ffprobe, confined. Safe for concurrent use.
type Runner struct {
	cfg             Config
	ffmpeg, ffprobe string // absolute, links resolved

	detect    sync.Once // fills what is below
	layers    confine.Layers
	report    []confine.Layer
	detectErr error
}

// New finds the binaries. It fails when one is missing, or when the program did
// not call confine.Main first, because every pass would then start the whole
// program again.
func New(cfg Config) (*Runner, error) {
	if !confine.Armed() {
		return nil, errors.New("media: confine.Main must be the first statement of main")
	}
	cfg.FFmpeg = orDefault(cfg.FFmpeg, "ffmpeg")
	cfg.FFprobe = orDefault(cfg.FFprobe, "ffprobe")
	cfg.MaxMemoryBytes = orDefault(cfg.MaxMemoryBytes, DefaultMaxMemory())
	cfg.MaxFileBytes = orDefault(cfg.MaxFileBytes, defaultMaxFileBytes)
	cfg.MaxPixels = orDefault(cfg.MaxPixels, defaultMaxPixels)
	cfg.ProbeTimeout = orDefault(cfg.ProbeTimeout, defaultProbeTimeout)
	cfg.MeasureTimeout = orDefault(cfg.MeasureTimeout, defaultMeasureTimeout)
	cfg.Log = orDefault(cfg.Log, slog.New(slog.DiscardHandler))
	r := &Runner{cfg: cfg}
	var err error
	if r.ffmpeg, err = findBinary(cfg.FFmpeg); err != nil {
		return nil, err
	}
	if r.ffprobe, err = findBinary(cfg.FFprobe); err != nil {
		return nil, err
	}
	return r, nil
}

func orDefault[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}

// MaxMemory is how much private memory one process may use, in bytes.
func (r *Runner) MaxMemory() int64 { return r.cfg.MaxMemoryBytes }

// findBinary resolves links, because the confinement permits files, not names.
func findBinary(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("media: %w", err)
	}
	if path, err = filepath.Abs(path); err != nil {
		return "", fmt.Errorf("media: %w", err)
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return "", fmt.Errorf("media: %w", err)
	}
	return path, nil
}

// Pass is one ffmpeg run, built by a pure planner.
type Pass struct {
	Name string // reads like the pipeline: "normalize segment 0"

	// Args follow the flags the runner adds itself: -nostdin, -hide_banner,
	// -loglevel repeat+warning, -progress and -y, and -max_pixels for each input.
	// Inputs from outside are opened with InputArgs.
	Args []string

	Dir    string   // working directory, absolute: the only place the pass may write
	Inputs []string // further files (or folders) the pass may read, absolute

	Timeout    time.Duration  // 0 is none
	OnProgress func(Progress) // may be nil; called from one goroutine, never after Encode returned

	// Stdin is read as pipe:0. May be nil. An error other than io.EOF ends the
	// pass. A Read in progress may outlive Encode when ffmpeg ends before its
	// input does.
	Stdin io.Reader
	// Stdout receives what the pass writes to pipe:1. When nil, pipe:1 carries the
	// progress and the pass must not write to it. A failing writer ends the pass.
	Stdout io.Writer
}

// Progress is how far a pass has come.
type Progress struct {
	Frames  int64         // video frames written so far
	OutTime time.Duration // last timestamp written
}

// Result is what a finished pass did and cost.
type Result struct {
	Progress
	UserCPU, SystemCPU time.Duration
	MaxRSSBytes        int64  // highest resident memory seen; 0 when the pass was too short to look
	CorruptFrames      int    // decoded with errors, and shown all the same
	StderrTail         string // warnings and errors of a pass that ended well all the same
}

// Encode runs one pass to its end. The error is an *ExitError when ffmpeg
// failed, wraps ErrTimeout when the pass took longer than its Timeout, and
// wraps the context's cause when ctx ended first. Result is filled in either
// case as far as it is known.
//
// No error is no proof of a complete output: ffmpeg takes the end of memory and
// damaged input for the end of the video and exits with 0. Whoever knows how much
// was to come compares it with Result.Frames, or measures.
//
// When Encode returns, the process is gone and nothing writes to Dir anymore.
func (r *Runner) Encode(ctx context.Context, p Pass) (Result, error) {
	meter := &progressMeter{notify: p.OnProgress}
	job := command{
		name: p.Name, binary: r.ffmpeg, dir: p.Dir, reads: p.Inputs,
		stdin: p.Stdin, timeout: p.Timeout,
	}
	job.args = []string{"-nostdin", "-hide_banner", "-loglevel", "repeat+warning", "-progress", "pipe:1", "-y"}
	if p.Stdout == nil {
		job.stdout = meter
	} else {
		job.args[5] = "pipe:3"
		job.stdout, job.extra = p.Stdout, meter
	}
	for _, arg := range p.Args {
		if arg == "-i" {
			job.args = append(job.args, r.maxPixels()...)
		}
		job.args = append(job.args, arg)
	}
	job.started = meter.watch

	out, err := r.run(ctx, job)
	last, rss := meter.result()
	return Result{
		Progress: last,
		UserCPU:  out.userCPU, SystemCPU: out.systemCPU,
		MaxRSSBytes: rss, CorruptFrames: out.corrupt, StderrTail: out.stderr,
	}, err
}

// pixelSlack is what decoders may round the sides of a frame up by.
const pixelSlack = 1 << 20

// maxPixels makes decoders of the next input refuse frames beyond the limit: a
// stream may begin with small ones, which is all that its header tells.
func (r *Runner) maxPixels() []string {
	return []string{"-max_pixels", strconv.FormatInt(r.cfg.MaxPixels+pixelSlack, 10)}
}

// version returns the first line of `<binary> -version`.
func (r *Runner) version(ctx context.Context, binary string) (string, error) {
	var b strings.Builder
	_, err := r.run(ctx, command{
		name: "version", binary: binary, args: []string{"-version"},
		stdout: &b, timeout: r.cfg.ProbeTimeout,
	})
	line, _, _ := strings.Cut(b.String(), "\n")
	return line, err
}
