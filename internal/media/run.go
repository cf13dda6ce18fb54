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
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	cmd, err := r.cagedCommand(ctx, c, f)
	if err != nil {
		return outcome{}, fmt.Errorf("%s: %w", c.name, err)
	}
	stderr := &tail{limit: stderrTailBytes}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.stdin, c.stdout, stderr
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = stopGrace

	extra, err := attachExtra(cmd, c.extra)
	if err != nil {
		return outcome{}, fmt.Errorf("%s: %w", c.name, err)
	}
	err = cmd.Start()
	extra.started()
	if err != nil {
		extra.wait()
		return outcome{}, &startError{name: c.name, err: err}
	}
	if c.started != nil {
		c.started(cmd.Process.Pid)
	}
	err = cmd.Wait() // returns after stdout and stderr were read to their end
	extra.wait()

	out := outcome{stderr: stderr.String()}
	if s := cmd.ProcessState; s != nil {
		out.userCPU, out.systemCPU = s.UserTime(), s.SystemTime()
	}
	return out, judge(ctx, c.name, cmd.ProcessState, err, out.stderr)
}

// judge turns the end of a process into an error. A process that finished its
// work counts as finished even when ctx ended at the same moment.
func judge(ctx context.Context, name string, state *os.ProcessState, waitErr error, stderr string) error {
	success := state != nil && state.Success()
	switch {
	case success && (waitErr == nil || errors.Is(waitErr, exec.ErrWaitDelay)):
		// ErrWaitDelay: ffmpeg ended without reading all of a Stdin whose
		// reader blocks; what it wrote is complete.
		return nil
	case ctx.Err() != nil && (!success || errors.Is(waitErr, ctx.Err())):
		if success {
			return nil
		}
		return fmt.Errorf("%s: %w", name, context.Cause(ctx))
	case success:
		return fmt.Errorf("%s: %w", name, waitErr) // a Stdout writer or Stdin reader failed
	}
	status, ok := state.Sys().(syscall.WaitStatus)
	if ok && status.Exited() && status.ExitStatus() == cageExitStatus {
		return fmt.Errorf("%s: cage: %s", name, stderr)
	}
	exit := &ExitError{Name: name, Code: state.ExitCode(), Stderr: stderr}
	if ok && status.Signaled() {
		exit.Signal = status.Signal()
	}
	if waitErr != nil && !isExit(waitErr) {
		return fmt.Errorf("%w: %w", waitErr, exit) // the copy failed first, ffmpeg because of it
	}
	return exit
}

func isExit(err error) bool {
	_, ok := errors.AsType[*exec.ExitError](err)
	return ok
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
