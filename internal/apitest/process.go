package apitest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// child is one running `cutroom serve`.
type child struct {
	cmd    *exec.Cmd
	log    *logBuffer
	exited chan struct{} // closed when the process has ended and log is complete
}

// launch starts the binary in a process group of its own, with exactly env as
// its environment and dir as its working directory.
func launch(binary, dir string, env []string, log *logBuffer, args ...string) (*child, error) {
	cmd := exec.Command(binary, args...)
	cmd.Dir = dir
	cmd.Env = env
	cmd.Stdout, cmd.Stderr = log, log
	// A group of its own lets Kill9 and cleanup reach ffmpeg children, and
	// keeps a terminal's interrupt from stopping the service under a test.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	p := &child{cmd: cmd, log: log, exited: make(chan struct{})}
	go func() {
		defer close(p.exited)
		_ = cmd.Wait() // the status is read from ProcessState
	}()
	return p, nil
}

// status is the exit status; -1 when a signal ended the process. Only valid
// after exited.
func (p *child) status() int { return p.cmd.ProcessState.ExitCode() }

func (p *child) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// kill ends the process and everything in its group at once, like a power cut
// for the service, and returns when it is gone.
func (p *child) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // already gone: nothing to do
	<-p.exited
}

// stop asks the process to end and returns its exit status. Past the deadline
// it is killed and that is an error.
func (p *child) stop(sig os.Signal, deadline time.Duration) (int, error) {
	if p.running() {
		if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return -1, fmt.Errorf("signal the service: %w", err)
		}
	}
	select {
	case <-p.exited:
		return p.status(), nil
	case <-time.After(deadline):
		p.kill()
		return -1, fmt.Errorf("the service did not stop within %v of %v", deadline, sig)
	}
}

// Run runs the binary to its end with the given environment (only that, plus
// PATH, HOME and TMPDIR), and returns its exit status and everything it
// printed. It is killed when ctx ends.
//
// dir is the working directory.
func Run(ctx context.Context, dir string, env map[string]string, args ...string) (status int, output string, err error) {
	binary, err := Binary()
	if err != nil {
		return -1, "", err
	}
	log := &logBuffer{}
	p, err := launch(binary, dir, environ(env), log, args...)
	if err != nil {
		return -1, "", err
	}
	select {
	case <-p.exited:
		return p.status(), log.String(), nil
	case <-ctx.Done():
		p.kill()
		return -1, log.String(), fmt.Errorf("cutroom %s: %w", strings.Join(args, " "), ctx.Err())
	}
}

// environ is the environment of a child: the given keys and the few that any
// program needs, so that nothing of the developer's shell configures it.
func environ(env map[string]string) []string {
	var out []string
	for _, key := range []string{"PATH", "HOME", "TMPDIR", "GOCOVERDIR"} {
		if v, ok := os.LookupEnv(key); ok {
			out = append(out, key+"="+v)
		}
	}
	for k, v := range env {
		out = append(out, k+"="+v)
	}
	return out
}

// logBuffer collects what a process prints.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string { return b.since(0) }

func (b *logBuffer) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Len()
}

func (b *logBuffer) since(offset int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.buf.Bytes()[min(offset, b.buf.Len()):])
}
