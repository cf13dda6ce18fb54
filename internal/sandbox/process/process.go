// Package process runs programs: tools until they end, and the service as a child process. It waits for the child,
// stops it, and kills it with everything it started.
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
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// FFmpeg runs ffmpeg to its end and overwrites existing files.
func FFmpeg(ctx context.Context, args ...string) error {
	_, err := Output(ctx, "ffmpeg", append([]string{"-nostdin", "-hide_banner", "-loglevel", "error", "-y"}, args...)...)
	return err
}

// Output runs a program to its end and returns its output. An error contains the end of its standard error.
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

// Environ returns the environment of a child: env, and those variables of this process whose names match and which
// env does not set. A developer's real DATABASE_URL or bucket must not be used by accident.
func Environ(env map[string]string, inherited *regexp.Regexp) (list []string) {
	for _, variable := range os.Environ() {
		key, _, _ := strings.Cut(variable, "=")
		if _, set := env[key]; !set && inherited.MatchString(key) {
			list = append(list, variable)
		}
	}
	for key, value := range env {
		list = append(list, key+"="+value)
	}
	return list
}

// Child is a running program. Its methods may be called from any goroutine.
type Child struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed after the program has ended and its output is written
}

// Start starts a program in its own process group, with exactly env as its environment. Ctrl-C in a terminal does not
// reach it; Kill reaches everything it started. If this process is killed, the program gets a SIGTERM.
func Start(program, dir string, env []string, log io.Writer, args ...string) (*Child, error) {
	c := &Child{cmd: exec.Command(program, args...), ended: make(chan struct{})}
	c.cmd.Dir, c.cmd.Env, c.cmd.Stdout, c.cmd.Stderr = dir, env, log, log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	started := make(chan error)
	go func() {
		// The kernel ties the child to the thread that started it, so that thread must stay.
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

// PID returns the process id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Ended returns a channel that is closed when the program has ended, for any reason.
func (c *Child) Ended() <-chan struct{} { return c.ended }

// Running reports whether the program still runs.
func (c *Child) Running() bool {
	select {
	case <-c.ended:
		return false
	default:
		return true
	}
}

// Status returns the exit status of the ended program, or -1 if a signal ended it.
func (c *Child) Status() int {
	<-c.ended
	return c.cmd.ProcessState.ExitCode()
}

// Kill kills the program and everything in its group at once, like a power cut, and returns when it has ended.
func (c *Child) Kill() {
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) // already gone: nothing to do
	<-c.ended
}

// Stop sends the signal and returns the exit status. If the program has not ended when ctx ends, Stop kills it and
// returns an error.
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

// Healthy polls /healthz of the service at base until it returns 200, or the service or ctx ends.
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
