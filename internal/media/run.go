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
)

const stderrTailBytes = 8 << 10

// command is one caged run of either binary.
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
}

// outcome is what is known of a process that ended.
type outcome struct {
	userCPU, systemCPU time.Duration
	stderr             string
}

// run runs c in the cage with the features this kernel was found to grant.
func (r *Runner) run(ctx context.Context, c command) (outcome, error) {
	if err := r.prepareCage(ctx); err != nil {
		return outcome{}, err
	}
	return r.runWith(ctx, c, r.cage.features)
}

// runWith starts, watches and judges one process.
//
// The goroutine stays on its thread until the process is gone: the kernel sends
// the parent-death signal when the *thread* that forked ends, and it is this
// signal that takes ffmpeg along when the server is killed.
func (r *Runner) runWith(ctx context.Context, c command, f features) (outcome, error) {
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

	cmd, err := r.cagedCommand(ctx, c, f)
	if err != nil {
		return outcome{}, fmt.Errorf("%s: %w", c.name, err)
	}
	stderr := &tail{limit: stderrTailBytes}
	cmd.Stderr = stderr
	output := &outputKeeper{to: c.stdout}
	if c.stdout != nil {
		cmd.Stdout = output
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = stopGrace

	extra, err := attachExtra(cmd, c.extra)
	if err != nil {
		return outcome{}, fmt.Errorf("%s: %w", c.name, err)
	}
	feed, err := attachStdin(cmd, c.stdin)
	if err != nil {
		extra.started()
		extra.wait()
		return outcome{}, fmt.Errorf("%s: %w", c.name, err)
	}
	err = cmd.Start()
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

	out := outcome{stderr: stderr.String()}
	if s := cmd.ProcessState; s != nil {
		out.userCPU, out.systemCPU = s.UserTime(), s.SystemTime()
	}
	if output.err != nil {
		// The process failed because nobody took its output, or does not know.
		return out, fmt.Errorf("%s: take output: %w", c.name, output.err)
	}
	return out, judge(ctx, c.name, cmd.ProcessState, err, out.stderr)
}

// judge turns the end of a process into an error. A process that finished its
// work counts as finished even when ctx ended at the same moment.
func judge(ctx context.Context, name string, state *os.ProcessState, waitErr error, stderr string) error {
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
	if ok && status.Exited() && status.ExitStatus() == cageExitStatus {
		return fmt.Errorf("%s: cage: %s", name, stderr)
	}
	exit := &ExitError{Name: name, Code: state.ExitCode(), Stderr: stderr}
	if ok && status.Signaled() {
		exit.Signal = status.Signal()
	}
	return exit
}

// outputKeeper remembers why a writer refused output: os/exec prefers to report
// the failure of the process that followed from it.
type outputKeeper struct {
	to  io.Writer
	err error // read after the process and its pipes have ended
}

func (k *outputKeeper) Write(p []byte) (int, error) {
	n, err := k.to.Write(p)
	if err != nil {
		k.err = err
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

func attachExtra(cmd *exec.Cmd, to io.Writer) (*extraPipe, error) {
	if to == nil {
		return &extraPipe{}, nil
	}
	pr, pw, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.ExtraFiles = []*os.File{pw}
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

// wait returns when everything written was passed on.
func (e *extraPipe) wait() {
	if e.read != nil {
		<-e.done
		e.read.Close()
	}
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
