// Package process runs programs: tools to their end, and the service as a child
// that is waited for, stopped and killed with all that it started.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// FFmpeg runs ffmpeg to its end, over files that are there already.
func FFmpeg(ctx context.Context, args ...string) error {
	_, err := Output(ctx, "ffmpeg", append([]string{"-nostdin", "-hide_banner", "-loglevel", "error", "-y"}, args...)...)
	return err
}

// Output runs a program to its end and returns what it printed; an error holds
// the end of its complaints.
func Output(ctx context.Context, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s: %w", program, ctx.Err())
		}
		text := strings.TrimSpace(complaint.String())
		return nil, fmt.Errorf("%s: %w: %s", program, err, text[max(len(text)-600, 0):])
	}
	return out.Bytes(), nil
}

// Child is a running program. Its methods may be called from any goroutine.
type Child struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when the program has ended and all it printed is written
}

// Start starts a program in a process group of its own, with exactly env as its
// environment: a terminal's Ctrl-C does not reach it, Kill reaches what it
// started. It gets a SIGTERM should this process be killed.
func Start(program, dir string, env []string, log io.Writer, args ...string) (*Child, error) {
	c := &Child{cmd: exec.Command(program, args...), ended: make(chan struct{})}
	c.cmd.Dir, c.cmd.Env, c.cmd.Stdout, c.cmd.Stderr = dir, env, log, log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	started := make(chan error)
	go func() {
		// The kernel means the thread that started the child, so it has to stay.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			_ = c.cmd.Wait() // the status is read from ProcessState
		}
		close(c.ended)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	return c, nil
}

// PID is the process id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Ended is closed when the program has ended, asked or not.
func (c *Child) Ended() <-chan struct{} { return c.ended }

// Running tells whether the program has not ended yet.
func (c *Child) Running() bool {
	select {
	case <-c.ended:
		return false
	default:
		return true
	}
}

// Status is the exit status once the program has ended; -1 when a signal ended
// it.
func (c *Child) Status() int {
	<-c.ended
	return c.cmd.ProcessState.ExitCode()
}

// Kill ends the program and everything in its group at once, like a power cut,
// and returns when it is gone.
func (c *Child) Kill() {
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) // already gone: nothing to do
	<-c.ended
}

// Stop asks the program to end and returns its exit status. Where it has not
// ended when ctx does, it is killed and that is an error.
func (c *Child) Stop(ctx context.Context, signal os.Signal) (status int, err error) {
	if err := c.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return -1, fmt.Errorf("signal %s: %w", c.cmd.Path, err)
	}
	select {
	case <-c.ended:
		return c.Status(), nil
	case <-ctx.Done():
		c.Kill()
		return -1, fmt.Errorf("%s did not end in time after %v and was killed", c.cmd.Path, signal)
	}
}

// Healthy asks the service at base for /healthz until it answers 200, has ended
// or ctx has.
func (c *Child) Healthy(ctx context.Context, client *http.Client, base string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/healthz", nil)
		if err != nil {
			return fmt.Errorf("ask for health: %w", err)
		}
		if res, err := client.Do(req); err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-c.ended:
			return fmt.Errorf("%s ended while starting, with status %d", c.cmd.Path, c.Status())
		case <-ctx.Done():
			return fmt.Errorf("%s is not healthy: %w", c.cmd.Path, ctx.Err())
		}
	}
}
