// The limits of an ffmpeg pass: files it may see, bytes it may write, memory, and its end when the server dies.

package media_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cutroom/internal/film/media"
	"cutroom/internal/film/media/container"
	"cutroom/internal/testkit/mediatest"
)

// inForce skips a test if this kernel does not grant the layer.
func inForce(t *testing.T, r *media.Runner, layer string) {
	t.Helper()
	report, err := r.Confinement(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range report {
		if l.Name == layer && !l.InForce {
			t.Skipf("%s: %s", layer, l.Detail)
		}
	}
}

// tone is a pass that makes d of sound without any input file.
func tone(d time.Duration, output ...string) []string {
	return append([]string{"-f", "lavfi", "-i", fmt.Sprintf("sine=d=%.3f", d.Seconds())}, output...)
}

// The confine package tests everything else that a confined process cannot do.
func TestConfinementKeepsFilesApart(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	inForce(t, r, "landlock")
	dir, outside := t.TempDir(), t.TempDir()
	secret := filepath.Join(outside, "secret.wav")
	mediatest.FFmpeg(t, tone(time.Second, secret)...)
	for name, c := range map[string]struct {
		inputs, args []string
		denied       bool
	}{
		"a named input":              {[]string{secret}, append(media.InputArgs(container.WAV, secret), "1.wav"), false},
		"an input in a named folder": {[]string{outside}, append(media.InputArgs(container.WAV, secret), "2.wav"), false},
		"another file":               {nil, append(media.InputArgs(container.WAV, secret), "3.wav"), true},
		"an output outside":          {nil, tone(time.Second, filepath.Join(outside, "out.wav")), true},
	} {
		_, err := r.Encode(t.Context(), media.Pass{Name: "try", Dir: dir, Inputs: c.inputs, Args: c.args, Timeout: time.Minute})
		exit, failed := errors.AsType[*media.ExitError](err)
		if failed != c.denied || failed && !strings.Contains(exit.Stderr, "Permission denied") {
			t.Errorf("%s: %v, denied: want %v", name, err, c.denied)
		}
	}
}

// A pass is ended by the limit on a file, by the default limits on its folder and by the caller's.
func TestAPassThatWritesTooMuchIsEnded(t *testing.T) {
	t.Parallel()
	r, err := media.New(media.Config{MaxFileBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	dir := ""
	run := func(watch func(int64, int) error, args ...string) error {
		dir = t.TempDir()
		_, err := r.Encode(t.Context(), media.Pass{Name: "fill", Dir: dir, Args: args, Watch: watch, Timeout: time.Minute})
		return err
	}
	_, failed := errors.AsType[*media.ExitError](run(nil, tone(time.Hour, "out.wav")...))
	if info, err := os.Stat(filepath.Join(dir, "out.wav")); !failed || err != nil || info.Size() > 1<<20 {
		t.Errorf("a large file: failed %v, %v, %v", failed, info, err)
	}
	frames := func(n string) []string {
		return []string{"-f", "lavfi", "-i", "color=s=16x16:r=100", "-frames:v", n, "-f", "image2", "%d.png"}
	}
	if err := run(nil, frames("100")...); err != nil {
		t.Errorf("100 files: %v", err)
	}
	if err := run(nil, frames("101")...); !errors.Is(err, media.ErrTooMuchOutput) {
		t.Errorf("101 files: %v", err)
	}
	// Only the kill ends this pass: it writes as fast as the sound plays.
	limit := errors.New("the caller's limit")
	if err := run(func(sizeBytes int64, files int) error {
		if files == 1 && sizeBytes > 0 {
			return limit
		}
		return nil
	}, "-re", "-f", "lavfi", "-i", "sine", "out.wav"); !errors.Is(err, limit) {
		t.Errorf("an endless pass: %v", err)
	}
}

func TestConfinementLimitsMemory(t *testing.T) {
	t.Parallel()
	small, err := media.New(media.Config{MaxMemoryBytes: 200 << 20})
	if err != nil {
		t.Fatal(err)
	}
	// The filter reverse holds every frame until the end: 280 MB.
	source := "testsrc2=s=1280x720:r=30,trim=end_frame=200,format=yuv420p"
	args := []string{"-f", "lavfi", "-i", source, "-vf", "reverse", "-f", "null", "-"}
	fits := func(r *media.Runner) bool {
		var frames int64
		_, err := r.Encode(t.Context(), media.Pass{Name: "hungry", Dir: t.TempDir(), Args: args, Timeout: time.Minute,
			OnProgress: func(p media.Progress) { frames = p.Frames }})
		return err == nil && frames == 200 // ffmpeg may treat the end of memory as the end of input
	}
	if fits(small) || !fits(newRunner(t)) {
		t.Error("200 MB hold 280, or the default does not")
	}
}

// endless is a pass that runs until it is stopped.
func endless(dir string, onProgress func(media.Progress)) media.Pass {
	return media.Pass{
		Name: "endless", Dir: dir, OnProgress: onProgress,
		Args: []string{"-re", "-f", "lavfi", "-i", "testsrc2=s=128x72", "-f", "null", "-"},
	}
}

// children lists the living child processes of pid.
func children(t *testing.T, pid int) []int {
	t.Helper()
	var all []int
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		for field := range strings.FieldsSeq(string(text)) {
			n, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, n)
		}
	}
	if len(all) == 0 {
		t.Fatalf("process %d has no children", pid)
	}
	return all
}

// serverMain is a server that runs an endless pass.
func serverMain() {
	r, err := media.New(media.Config{})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	// Without a Dir the pass may not write to any folder; a null output does not need one.
	_, err = r.Encode(context.Background(), endless("", func(p media.Progress) { fmt.Println("running") }))
	fmt.Println("ended:", err)
	os.Exit(1)
}

func TestAKilledServerEndsItsFFmpeg(t *testing.T) {
	server := exec.CommandContext(t.Context(), "/proc/self/exe")
	server.Env = append(os.Environ(), roleEnv+"=server")
	server.Stderr = os.Stderr
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "running\n" {
		t.Fatalf("the server says %q, %v", line, err)
	}
	ffmpegs := children(t, server.Process.Pid)
	pidfd, err := unix.PidfdOpen(ffmpegs[0], 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if !endsWithin(t, pidfd, time.Minute) {
		t.Errorf("ffmpeg (%d) outlived its server", ffmpegs[0])
	}
	// The server was killed, so Wait must return an error.
	if err := server.Wait(); err == nil {
		t.Error("the server ended well")
	}
}
