// The Runner and its limits, and what one ffmpeg run is given: arguments, folders, time-out, progress.

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
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"cutroom/internal/film/media/confine"
)

// Defaults of Config.
const (
	defaultMaxFileBytes = 20 << 30
	defaultMaxPixels    = 8192 * 4320
)

const (
	probeTimeout   = 30 * time.Second // of short runs, such as -version
	measureTimeout = 5 * time.Minute
	// pipeGrace is how long output may take to arrive after the process has ended.
	pipeGrace = 5 * time.Second
)

// Config names the binaries and limits how much a pass may consume.
type Config struct {
	FFmpeg  string // path, or name looked up in PATH; default "ffmpeg"
	FFprobe string // default "ffprobe" in the folder that FFmpeg names, or in PATH

	MaxMemoryBytes int64 // private memory of one process; default defaultMaxMemory()
	MaxFileBytes   int64 // largest file one process may write; default 20 GiB
	MaxPixels      int64 // width x height of any decoded frame, whatever the header states; default 8192x4320
}

// defaultMaxMemory is three quarters of the machine's memory, between 1 and 8 GiB. Encoding 3840x2160 with the slow
// preset takes about 2 GiB.
func defaultMaxMemory() int64 {
	const lowest, highest = 1 << 30, 8 << 30
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return highest / 2
	}
	return min(max(int64(info.Totalram)*int64(info.Unit)/4*3, lowest), highest)
}

// Runner runs ffmpeg and ffprobe, confined. It is safe for concurrent use.
type Runner struct {
	cfg             Config
	ffmpeg, ffprobe string // absolute, links resolved

	detect    sync.Once // sets the fields below
	layers    confine.Layers
	report    []confine.Layer
	detectErr error
	release   string // ffmpeg's version, such as 5.1.9-0+deb12u1

	succeeded atomic.Pointer[time.Time] // end of ffmpeg's last run; nil if that run failed
}

// New finds the binaries. It fails if one is missing, or if the program did not call confine.Main first: every pass
// would then start the whole program again.
func New(cfg Config) (*Runner, error) {
	if !confine.Armed() {
		return nil, errors.New("media: confine.Main must be the first statement of main")
	}
	cfg.FFmpeg = cmp.Or(cfg.FFmpeg, "ffmpeg")
	if cfg.FFprobe == "" {
		folder, _ := filepath.Split(cfg.FFmpeg)
		cfg.FFprobe = folder + "ffprobe"
	}
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

// MaxMemory returns the private memory that one process may use, in bytes.
func (r *Runner) MaxMemory() int64 { return r.cfg.MaxMemoryBytes }

// findBinary resolves links, because Landlock rules apply to files, not names.
func findBinary(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return "", fmt.Errorf("media: %w", err)
	}
	return path, nil
}

// Pass is one ffmpeg run.
type Pass struct {
	Name string // for logs and errors: "normalize segment 0"

	// Args follow the flags that the runner adds itself: -nostdin, -hide_banner, -loglevel repeat+warning, -y and
	// -progress, and -max_pixels for each input. Open inputs from outside with InputArgs.
	Args []string

	Dir    string   // working directory, absolute: the only place the pass may write
	Inputs []string // further files (or folders) the pass may read, absolute

	// Watch is called four times a second and at the end, with the size and number of the files in Dir. An error ends
	// the pass and is wrapped in Encode's. If Watch is nil, the files may have as many bytes as one file, and be
	// maxFiles. The pass can make no folders and remove no file.
	Watch func(sizeBytes int64, files int) error

	Timeout        time.Duration  // 0 means none
	MaxMemoryBytes int64          // 0 means the configured limit
	OnProgress     func(Progress) // may be nil; called from one goroutine, never after Encode has returned

	// Stdin is the input on pipe:0. It may be nil. Encode waits for a Read in progress and makes none after it has
	// returned. If Stdin fails with an error other than io.EOF, the pass fails too.
	Stdin io.Reader
	// Stdout receives the output on pipe:1; progress is not reported then. If it is nil, pipe:1 carries the
	// progress and the pass must not write to it. A failing writer ends the pass.
	Stdout io.Writer
}

// Progress is how far a pass has got.
type Progress struct {
	Frames  int64         // video frames written so far
	OutTime time.Duration // last timestamp written
}

// Encode runs one pass to its end. It returns how many frames were decoded with errors, and shown anyway. The error
// is an *ExitError if ffmpeg failed. It wraps ErrTimeout if the pass took longer than its Timeout, and the context's
// cause if ctx ended first.
//
// A nil error does not prove that the output is complete. If memory runs out or the input is damaged, ffmpeg treats
// that as the end of the video and exits with 0. The caller should measure the output.
//
// When Encode returns, the process has ended and nothing writes to Dir any more.
func (r *Runner) Encode(ctx context.Context, p Pass) (corruptFrames int, err error) {
	if p.Watch == nil {
		p.Watch = r.withinLimits
	}
	args := []string{"-nostdin", "-hide_banner", "-loglevel", "repeat+warning", "-y"}
	if p.Stdout == nil {
		p.Stdout = &progressMeter{notify: p.OnProgress}
		args = append(args, "-progress", "pipe:1")
	}
	for _, arg := range p.Args {
		if arg == "-i" {
			args = append(args, r.maxPixels()...)
		}
		args = append(args, arg)
	}
	p.Args = args
	out, err := r.run(ctx, r.ffmpeg, p)
	return out.corrupt, err
}

// maxFiles bounds the files in the folder of a pass without Watch.
const maxFiles = 100

func (r *Runner) withinLimits(sizeBytes int64, files int) error {
	if sizeBytes > r.cfg.MaxFileBytes || files > maxFiles {
		return fmt.Errorf("%w: %d bytes in %d files", ErrTooMuchOutput, sizeBytes, files)
	}
	return nil
}

// pixelSlack allows for decoders that round up the sides of a frame.
const pixelSlack = 1 << 20

// maxPixels makes the decoders of the next input refuse frames beyond the limit. The header states only the size of the
// first frames; later ones may be larger.
func (r *Runner) maxPixels() []string {
	return []string{"-max_pixels", strconv.FormatInt(r.cfg.MaxPixels+pixelSlack, 10)}
}
