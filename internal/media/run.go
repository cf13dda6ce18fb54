package media

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"cutroom/internal/media/confine"
)

const stderrTailBytes = 8 << 10

// command is one confined run of either binary.
type command struct {
	name    string
	binary  string
	args    []string
	dir     string   // may be written; "" is nowhere
	reads   []string // may be read
	stdin   io.Reader
	stdout  io.Writer
	extra   io.Writer // receives file descriptor 3; nil leaves it closed
	started func(pid int)
	timeout time.Duration
	memory  int64 // bytes of private memory; 0 is what the configuration allows
}

// outcome is what is known of a process that ended.
type outcome struct {
	userCPU, systemCPU time.Duration
	stderr             string
	corrupt            int // frames of which ffmpeg said so
}

// run runs c, confined as far as this kernel was found to grant.
func (r *Runner) run(ctx context.Context, c command) (outcome, error) {
	layers, _, err := r.confinement(ctx)
	if err != nil {
		return outcome{}, err
	}
	return r.runWith(ctx, c, layers)
}

// confinement finds out, once, which layers this kernel grants.
func (r *Runner) confinement(ctx context.Context) (confine.Layers, []confine.Layer, error) {
	r.detect.Do(func() {
		// The first caller's cancellation must not decide for all later ones.
		ctx := context.WithoutCancel(ctx)
		r.layers, r.report, r.detectErr = confine.Detect(func(l confine.Layers) error {
			_, err := r.runWith(ctx, command{
				name: "confinement test", binary: r.ffmpeg, args: []string{"-version"}, stdout: io.Discard, timeout: r.cfg.ProbeTimeout,
			}, l)
			if start, ok := errors.AsType[*startError](err); ok {
				return start.err
			}
			return err
		})
		if r.detectErr != nil {
			r.detectErr = fmt.Errorf("media: ffmpeg does not start: %w", r.detectErr)
		}
	})
	return r.layers, r.report, r.detectErr
}

// confined builds the process of c, and the pipe behind its descriptor 3.
func (r *Runner) confined(ctx context.Context, c command, layers confine.Layers) (*exec.Cmd, *extraPipe, error) {
	p := confine.Program{Binary: c.binary, Args: c.args, Dir: c.dir, Reads: c.reads,
		MemoryBytes: uint64(orDefault(c.memory, r.cfg.MaxMemoryBytes)), FileBytes: uint64(r.cfg.MaxFileBytes),
		// A process using every core for its whole time-out is the honest maximum.
		CPU: c.timeout * time.Duration(runtime.GOMAXPROCS(0))}
	extra, err := newExtraPipe(c.extra)
	if err != nil {
		return nil, nil, err
	}
	var files []*os.File
	if extra.write != nil {
		files = append(files, extra.write)
	}
	cmd, err := confine.Command(ctx, p, layers, files...)
	if err != nil {
		extra.started()
		extra.wait()
	}
	return cmd, extra, err
}

// runWith starts, watches and judges one process.
//
// The goroutine stays on its thread until the process is gone: the kernel sends
// the parent-death signal when the *thread* that forked ends, and it is this
// signal that takes ffmpeg along when the server is killed.
func (r *Runner) runWith(ctx context.Context, c command, layers confine.Layers) (outcome, error) {
	if ctx.Err() != nil {
		return outcome{}, fmt.Errorf("%s: %w", c.name, context.Cause(ctx))
	}
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.timeout, ErrTimeout)
		defer cancel()
	}
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	cmd, extra, err := r.confined(ctx, c, layers)
	if err != nil {
		return outcome{}, fmt.Errorf("%s: %w", c.name, err)
	}
	stderr := &tail{limit: stderrTailBytes}
	cmd.Stderr = stderr
	output := &outputKeeper{to: c.stdout, refused: abort}
	if c.stdout != nil {
		cmd.Stdout = output
	}
	cmd.WaitDelay = pipeGrace
	feed, err := attachStdin(cmd, c.stdin)
	if err != nil {
		extra.started()
		extra.wait()
		return outcome{}, fmt.Errorf("%s: %w", c.name, err)
	}
	err = confine.Start(cmd)
	extra.started()
	feed.started(err, abort)
	if err != nil {
		extra.wait()
		return outcome{}, &startError{name: c.name, err: err}
	}
	if c.started != nil {
		c.started(cmd.Process.Pid)
	}
	err = cmd.Wait() // returns after stdout and stderr were read to their end
	extra.wait()
	feed.ended()

	out := outcome{stderr: stderr.String(), corrupt: stderr.corrupt}
	if s := cmd.ProcessState; s != nil {
		out.userCPU, out.systemCPU = s.UserTime(), s.SystemTime()
	}
	if output.err != nil {
		// The process failed because nobody took its output, or does not know.
		return out, fmt.Errorf("%s: take output: %w", c.name, output.err)
	}
	return out, exitError(ctx, c.name, cmd.ProcessState, err, out.stderr)
}

// exitError turns the end of a process into an error. A process that finished its
// work counts as finished even when ctx ended at the same moment.
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

// outputKeeper remembers why a writer refused output, and ends the process: the
// first process of a PID namespace does not die of a broken pipe.
type outputKeeper struct {
	to      io.Writer
	refused func(error)
	err     error // read after the process and its pipes have ended
}

func (k *outputKeeper) Write(p []byte) (int, error) {
	n, err := k.to.Write(p)
	if err != nil {
		k.err = err
		k.refused(err)
	}
	return n, err
}

// startError is a process that never came to life.
type startError struct {
	name string
	err  error
}

func (e *startError) Error() string { return e.name + ": start: " + e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

// extraPipe carries what the process writes to descriptor 3.
type extraPipe struct {
	read, write *os.File
	done        chan struct{}
	to          io.Writer
}

func newExtraPipe(to io.Writer) (*extraPipe, error) {
	if to == nil {
		return &extraPipe{}, nil
	}
	pr, pw, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	e := &extraPipe{read: pr, write: pw, done: make(chan struct{}), to: to}
	go func() {
		defer close(e.done)
		// The writer is ours and never fails; a read error means the process is gone.
		_, _ = io.Copy(e.to, e.read)
	}()
	return e, nil
}

// started closes our copy of the writing end, so that the process holds the last one.
func (e *extraPipe) started() {
	if e.write != nil {
		e.write.Close()
	}
}

// wait returns when everything written was passed on, soon after the process
// ended, whoever else may still hold the pipe.
func (e *extraPipe) wait() {
	if e.read == nil {
		return
	}
	_ = e.read.SetReadDeadline(time.Now().Add(pipeGrace)) // pipes have deadlines
	<-e.done
	e.read.Close()
}

// stdinPipe feeds a reader to the process. os/exec would wait for the reader
// after the process has ended, and a reader may block for ever.
type stdinPipe struct {
	read, write *os.File
	from        io.Reader
}

func attachStdin(cmd *exec.Cmd, from io.Reader) (*stdinPipe, error) {
	if f, ok := from.(*os.File); from == nil || ok && f != nil {
		cmd.Stdin = from
		return &stdinPipe{}, nil
	}
	pr, pw, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdin = pr
	return &stdinPipe{read: pr, write: pw, from: from}, nil
}

// started begins to feed the process, or cleans up when it did not start. An
// error of the reader ends the process: cut-off input must not pass for whole.
func (s *stdinPipe) started(startErr error, abort func(error)) {
	if s.read == nil {
		return
	}
	s.read.Close()
	if startErr != nil {
		s.write.Close()
		return
	}
	go func() {
		defer s.write.Close()
		source := &errorKeeper{from: s.from}
		// A write error only means that the process has read enough.
		_, _ = io.Copy(s.write, source)
		if source.err != nil {
			abort(fmt.Errorf("read input: %w", source.err))
		}
	}()
}

// ended makes the feeding stop at its next write.
func (s *stdinPipe) ended() {
	if s.write != nil {
		s.write.Close()
	}
}

// errorKeeper remembers why reading ended, unless at the end.
type errorKeeper struct {
	from io.Reader
	err  error
}

func (k *errorKeeper) Read(p []byte) (int, error) {
	n, err := k.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		k.err = err
	}
	return n, err
}
