package media

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"cutroom/internal/media/confine"
)

// Defaults of Config.
const (
	defaultMaxFileBytes = 16 << 30
	defaultMaxPixels    = 8192 * 4320
)

const (
	probeTimeout   = 30 * time.Second // of a Probe, and of what is as short
	measureTimeout = 5 * time.Minute
	// pipeGrace is how long what a process wrote may take to arrive after its end.
	pipeGrace = 5 * time.Second
)

// Config says where the binaries are and what a pass may consume.
type Config struct {
	FFmpeg, FFprobe string // paths or names looked up in PATH; default "ffmpeg" and "ffprobe"

	MaxMemoryBytes int64 // private memory of one process; default defaultMaxMemory()
	MaxFileBytes   int64 // largest file one process may write; default 16 GiB
	MaxPixels      int64 // width x height of any frame that is decoded, whatever the header said; default 8192x4320
}

// defaultMaxMemory is three quarters of the machine's memory, between 1 and 8
// GiB. Encoding 3840x2160 with the slow preset was seen to take 2 GiB.
func defaultMaxMemory() int64 {
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
	cfg.FFmpeg = cmp.Or(cfg.FFmpeg, "ffmpeg")
	cfg.FFprobe = cmp.Or(cfg.FFprobe, "ffprobe")
	cfg.MaxMemoryBytes = cmp.Or(cfg.MaxMemoryBytes, defaultMaxMemory())
	cfg.MaxFileBytes = cmp.Or(cfg.MaxFileBytes, defaultMaxFileBytes)
	cfg.MaxPixels = cmp.Or(cfg.MaxPixels, defaultMaxPixels)
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
	// -loglevel repeat+warning, -y and -progress, and -max_pixels for each input.
	// Inputs from outside are opened with InputArgs.
	Args []string

	Dir    string   // working directory, absolute: the only place the pass may write
	Inputs []string // further files (or folders) the pass may read, absolute

	Timeout        time.Duration  // 0 is none
	MaxMemoryBytes int64          // 0 is that of any other process
	OnProgress     func(Progress) // may be nil; called from one goroutine, never after Encode returned

	// Stdin is read as pipe:0, and never after Encode returned, which waits for a
	// Read in progress. May be nil. What came of input that ended with another
	// error than io.EOF fails with that error.
	Stdin io.Reader
	// Stdout receives what the pass writes to pipe:1. When nil, pipe:1 carries the
	// progress and the pass must not write to it; otherwise there is no progress. A
	// failing writer ends the pass.
	Stdout io.Writer
}

// Progress is how far a pass has come.
type Progress struct {
	Frames  int64         // video frames written so far
	OutTime time.Duration // last timestamp written
}

// Result is what a pass did.
type Result struct {
	Progress
	CorruptFrames int // decoded with errors, and shown all the same
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
	job := command{name: p.Name, binary: r.ffmpeg, dir: p.Dir, reads: p.Inputs, stdin: p.Stdin, stdout: p.Stdout, timeout: p.Timeout, memory: p.MaxMemoryBytes}
	job.args = []string{"-nostdin", "-hide_banner", "-loglevel", "repeat+warning", "-y"}
	meter := &progressMeter{notify: p.OnProgress}
	if p.Stdout == nil {
		job.stdout = meter
		job.args = append(job.args, "-progress", "pipe:1")
	}
	for _, arg := range p.Args {
		if arg == "-i" {
			job.args = append(job.args, r.maxPixels()...)
		}
		job.args = append(job.args, arg)
	}
	out, err := r.run(ctx, job)
	return Result{Progress: meter.now, CorruptFrames: out.corrupt}, err
}

// pixelSlack is what decoders may round the sides of a frame up by.
const pixelSlack = 1 << 20

// maxPixels makes decoders of the next input refuse frames beyond the limit: a
// stream may begin with small ones, which is all that its header tells.
func (r *Runner) maxPixels() []string {
	return []string{"-max_pixels", strconv.FormatInt(r.cfg.MaxPixels+pixelSlack, 10)}
}
