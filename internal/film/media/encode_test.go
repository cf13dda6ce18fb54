package media_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cutroom/internal/film/media"
)

// endsWithin waits for the process behind a pidfd to end.
func endsWithin(t *testing.T, pidfd int, d time.Duration) bool {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, int(d.Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return n == 1
	}
}

func TestEncodeReportsWhatItDid(t *testing.T) {
	t.Parallel()
	var last media.Progress
	_, err := newRunner(t).Encode(t.Context(), media.Pass{
		Name: "encode", Dir: t.TempDir(), Timeout: time.Minute,
		Args:       []string{"-f", "lavfi", "-i", "testsrc2=s=320x180:d=3:r=30", "-f", "null", "-"},
		OnProgress: func(p media.Progress) { last = p },
	})
	if err != nil || last.Frames != 90 || (last.OutTime-3*time.Second).Abs() > 100*time.Millisecond {
		t.Errorf("%v; progress ends at %+v, want frame 90 and about 3 s", err, last)
	}
}

func TestEncodeFailureKeepsTheReason(t *testing.T) {
	t.Parallel()
	_, err := newRunner(t).Encode(t.Context(), media.Pass{
		Name: "normalize segment 0", Dir: t.TempDir(), Args: []string{"-i", "file:missing.mp4", "out.mp4"},
	})
	// 5.1 exits with status 1 and a line about the file; later versions exit with another status and a summary.
	says := fmt.Sprint(err)
	if exit, ok := errors.AsType[*media.ExitError](err); !ok || exit.Code <= 0 || !strings.Contains(exit.Stderr, "No such file") ||
		!strings.HasPrefix(says, "normalize segment 0: exit status ") || !strings.HasSuffix(says, "No such file or directory") {
		t.Errorf("%v", err)
	}
}

// TestStubbornPassIsKilled stops a process that cannot react to signals.
func TestStubbornPassIsKilled(t *testing.T) {
	running := make(chan struct{})
	started := sync.OnceFunc(func() { close(running) })
	ctx, cancel := context.WithCancelCause(t.Context())
	stopping := errors.New("the server is stopping")
	r, done := newRunner(t), make(chan error, 1)
	go func() {
		_, err := r.Encode(ctx, endless(t.TempDir(), func(media.Progress) { started() }))
		done <- err
	}()
	<-running
	for _, pid := range children(t, os.Getpid()) {
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	cancel(stopping)
	if err := <-done; !errors.Is(err, stopping) {
		t.Errorf("%v, want the cause of the cancellation", err)
	}
}

// slowReader blocks in Read until ready, and for a while longer.
type slowReader struct {
	ready chan struct{}
	done  bool
}

func (r *slowReader) Read(p []byte) (int, error) {
	<-r.ready
	time.Sleep(100 * time.Millisecond)
	r.done = true
	return len(p), nil
}

// TestEncodeWaitsForItsReader ends a pass that ignores its input while the reader is in Read. The caller may then close
// the source, so Encode must have stopped reading.
func TestEncodeWaitsForItsReader(t *testing.T) {
	t.Parallel()
	r := &slowReader{ready: make(chan struct{})}
	end := sync.OnceFunc(func() { close(r.ready) })
	_, err := newRunner(t).Encode(t.Context(), media.Pass{
		Name: "deaf", Dir: t.TempDir(), Args: tone(time.Second, "-f", "null", "-"), Stdin: r,
		OnProgress: func(media.Progress) { end() },
	})
	if err != nil || !r.done {
		t.Errorf("%v; the reader is done: %v", err, r.done)
	}
}

// broken is a stream that fails or panics.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return b.Write(nil) }
func (b broken) Write([]byte) (int, error) {
	if b.err == nil {
		panic("boom")
	}
	return 0, b.err
}

func TestEncodeReportsBrokenStreams(t *testing.T) {
	t.Parallel()
	read := []string{"-f", "s16le", "-ar", "48000", "-ac", "1", "-i", "pipe:0", "-f", "null", "-"}
	write := tone(time.Minute, "-f", "wav", "pipe:1")
	torn := broken{errors.New("torn off")}
	for want, passes := range map[error][]media.Pass{
		torn.err: {
			{Args: read, Stdin: io.MultiReader(bytes.NewReader(make([]byte, 96000)), torn)},
			{Args: write, Stdout: torn},
		},
		nil: {{Args: read, Stdin: broken{}}, {Args: write, Stdout: broken{}}},
	} {
		for _, p := range passes {
			p.Name, p.Dir, p.Timeout = "stream", t.TempDir(), time.Minute
			_, err := newRunner(t).Encode(t.Context(), p)
			if want != nil && !errors.Is(err, want) || want == nil && !strings.Contains(fmt.Sprint(err), "panic: boom") {
				t.Errorf("%q: %v, want %v or else the panic", p.Args, err, want)
			}
		}
	}
}
