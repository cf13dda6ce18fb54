// Starts one ffmpeg or ffprobe process, confined, watches its time and its folder, and turns its exit into an error.

package media

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"cutroom/internal/base/rescue"
	"cutroom/internal/base/tracing"
	"cutroom/internal/film/media/confine"
	"cutroom/internal/storage/disk"
)

const stderrTailBytes = 8 << 10

// outcome is the result of an ended process.
type outcome struct {
	stderr  string
	corrupt int // frames that ffmpeg reported as corrupt
}

// run runs ffmpeg or ffprobe within every layer of confinement that this kernel grants.
func (r *Runner) run(ctx context.Context, binary string, p Pass) (_ outcome, err error) {
	program := "ffmpeg "
	if binary == r.ffprobe {
		program = "ffprobe "
	}
	ctx, end := tracing.Start(ctx, program+p.Name)
	defer func() { end(err) }()
	layers, _, err := r.confinement(ctx)
	if err != nil {
		return outcome{}, err
	}
	out, err := r.runWith(ctx, binary, p, layers)
	if binary == r.ffmpeg {
		r.recordRun(err)
	}
	return out, err
}

// recordRun stores the time of a successful run of ffmpeg; a failed run clears it.
func (r *Runner) recordRun(err error) {
	if err != nil {
		r.succeeded.Store(nil)
		return
	}
	now := time.Now()
	r.succeeded.Store(&now)
}

// confinement determines once which layers this kernel grants.
func (r *Runner) confinement(ctx context.Context) (confine.Layers, []confine.Layer, error) {
	r.detect.Do(func() {
		// If the first caller is cancelled, later callers must still get the result.
		ctx := context.WithoutCancel(ctx)
		var printed strings.Builder
		r.layers, r.report, r.detectErr = confine.Detect(func(l confine.Layers) error {
			printed.Reset()
			test := Pass{Name: "confinement test", Args: []string{"-version"}, Stdout: &printed, Timeout: probeTimeout}
			_, err := r.runWith(ctx, r.ffmpeg, test, l)
			return cmp.Or(errors.Unwrap(err), err) // without the name of the run
		})
		if r.detectErr != nil {
			r.detectErr = fmt.Errorf("media: ffmpeg does not start: %w", r.detectErr)
		}
		r.recordRun(r.detectErr)
		if words := strings.Fields(printed.String()); len(words) > 2 { // "ffmpeg version 5.1.9-0+deb12u1 Copyright"
			r.release = words[2]
		}
	})
	return r.layers, r.report, r.detectErr
}

// runWith starts one process, waits for it and turns its failure into an error.
//
// The goroutine stays on its thread until the process has ended, because the kernel sends the parent-death signal when
// the *thread* that forked ends. That signal kills ffmpeg when the server is killed.
func (r *Runner) runWith(ctx context.Context, binary string, p Pass, layers confine.Layers) (outcome, error) {
	if ctx.Err() != nil {
		return outcome{}, fmt.Errorf("%s: %w", p.Name, context.Cause(ctx))
	}
	if p.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, p.Timeout, ErrTimeout)
		defer cancel()
	}
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	cmd, err := confine.Command(ctx, confine.Program{Binary: binary, Args: p.Args, Dir: p.Dir, Reads: p.Inputs,
		MemoryBytes: uint64(cmp.Or(p.MaxMemoryBytes, r.cfg.MaxMemoryBytes)), FileBytes: uint64(r.cfg.MaxFileBytes),
		// Even a normal process that uses every core until its time-out stays within this.
		CPU: p.Timeout * time.Duration(runtime.GOMAXPROCS(0))}, layers)
	if err != nil {
		return outcome{}, fmt.Errorf("%s: %w", p.Name, err)
	}
	stderr := &tail{limit: stderrTailBytes}
	output := &outputKeeper{to: p.Stdout, refused: abort}
	cmd.Stderr = stderr
	if p.Stdin != nil {
		cmd.Stdin = rescuedReader{p.Stdin}
	}
	if p.Stdout != nil {
		cmd.Stdout = output
	}
	cmd.WaitDelay = pipeGrace
	if err := confine.Start(cmd); err != nil && ctx.Err() != nil {
		return outcome{}, fmt.Errorf("%s: %w", p.Name, context.Cause(ctx))
	} else if err != nil {
		return outcome{}, fmt.Errorf("%s: start: %w", p.Name, err)
	}
	watched := p.watch(abort)
	err = cmd.Wait() // also waits until stdin and the outputs are copied
	out := outcome{stderr: stderr.String(), corrupt: stderr.corrupt}
	if err := watched(); err != nil {
		return out, fmt.Errorf("%s: %w", p.Name, err)
	}
	if output.err != nil {
		// The writer refused output. The process may have failed because of that, or not noticed.
		return out, fmt.Errorf("%s: take output: %w", p.Name, output.err)
	}
	return out, exitError(ctx, p.Name, cmd.ProcessState, err, out.stderr)
}

// watchEvery is how often the writable folder of a process is measured.
const watchEvery = 250 * time.Millisecond

// watch measures the writable folder while the process runs, and ends the process if the folder holds too much. Call
// the result after the process has ended: it measures once more and returns the first error.
func (p *Pass) watch(abort func(error)) (end func() error) {
	if p.Dir == "" {
		return func() error { return nil }
	}
	check := func() error { return rescue.Do(func() error { return p.Watch(disk.Usage(p.Dir)) }) }
	ended, result := make(chan struct{}), make(chan error, 1)
	go func() {
		ticker := time.NewTicker(watchEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				result <- check()
				return
			case <-ticker.C:
				if err := check(); err != nil {
					abort(err)
					result <- err
					return
				}
			}
		}
	}()
	return func() error {
		close(ended)
		return <-result
	}
}

// exitError turns a process's exit into an error. A process that finished its work counts as finished even if ctx ended
// at the same moment.
func exitError(ctx context.Context, name string, state *os.ProcessState, waitErr error, stderr string) error {
	success := state != nil && state.Success()
	switch {
	case success && (waitErr == nil || errors.Is(waitErr, ctx.Err())):
		return nil
	case success:
		return fmt.Errorf("%s: %w", name, waitErr)
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", name, context.Cause(ctx))
	}
	status, ok := state.Sys().(syscall.WaitStatus)
	if ok && status.Exited() && status.ExitStatus() == confine.ExitStatus {
		return fmt.Errorf("%s: confine: %s", name, stderr)
	}
	exit := &ExitError{Name: name, Code: state.ExitCode(), Stderr: stderr}
	if ok && status.Signaled() {
		exit.Signal = status.Signal()
	}
	return exit
}

// rescuedReader turns a panic of its reader into an error. os/exec reads and writes in its own goroutines, where
// nothing else recovers a panic.
type rescuedReader struct{ from io.Reader }

func (r rescuedReader) Read(p []byte) (n int, err error) {
	err = rescue.Do(func() (err error) { n, err = r.from.Read(p); return err })
	return n, err
}

// outputKeeper stores the error of a writer that refused output or panicked, and ends the process: the first
// process of a PID namespace does not die of a broken pipe.
type outputKeeper struct {
	to      io.Writer
	refused func(error)
	err     error // read it only after the process and its pipes have ended
}

func (k *outputKeeper) Write(p []byte) (int, error) {
	var n int
	err := rescue.Do(func() (err error) { n, err = k.to.Write(p); return err })
	if err != nil {
		k.err = err
		k.refused(err)
	}
	return n, err
}
