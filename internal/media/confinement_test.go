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

	"cutroom/internal/media"
	"cutroom/internal/media/container"
	"cutroom/internal/mediatest"
)

func TestCheckFindsEverything(t *testing.T) {
	t.Parallel()
	rep, err := newRunner(t).Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(rep.Missing) > 0 {
		t.Errorf("missing: %v", rep.Missing)
	}
	if !strings.HasPrefix(rep.FFmpeg, "ffmpeg version") {
		t.Errorf("version %q", rep.FFmpeg)
	}
}

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

func TestConfinementKeepsFilesApart(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	inForce(t, r, "landlock")
	dir, outside := t.TempDir(), t.TempDir()
	secret := filepath.Join(outside, "secret.wav")
	mediatest.FFmpeg(t, tone(time.Second, secret)...)

	encode := func(inputs []string, args ...string) error {
		_, err := r.Encode(t.Context(), media.Pass{Name: "try", Dir: dir, Inputs: inputs, Args: args, Timeout: time.Minute})
		return err
	}
	open := media.InputArgs(container.WAV, secret)

	if err := encode([]string{secret}, append(open, "inside.wav")...); err != nil {
		t.Errorf("an input that was named cannot be read: %v", err)
	}
	if err := encode([]string{outside}, append(open, "inside2.wav")...); err != nil {
		t.Errorf("an input in a folder that was named cannot be read: %v", err)
	}
	denied := func(what string, err error) {
		t.Helper()
		exit, ok := errors.AsType[*media.ExitError](err)
		if !ok || !strings.Contains(exit.Stderr, "Permission denied") {
			t.Errorf("%s: %v, want permission denied", what, err)
		}
	}
	denied("reading a file outside", encode(nil, append(open, "stolen.wav")...))
	denied("reading /etc/passwd", encode(nil, "-f", "u8", "-ar", "8000", "-i", "file:/etc/passwd", "stolen.wav"))
	denied("reading the server's environment", encode(nil, "-f", "u8", "-ar", "8000", "-i", fmt.Sprintf("file:/proc/%d/environ", os.Getpid()), "stolen.wav"))
	denied("writing outside", encode(nil, tone(time.Second, filepath.Join(outside, "out.wav"))...))
	denied("writing over an input", encode([]string{secret}, tone(time.Second, secret)...))
	if _, err := os.Stat(filepath.Join(outside, "out.wav")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file was written outside: %v", err)
	}
}

func TestConfinementLimitsFileSize(t *testing.T) {
	t.Parallel()
	r, err := media.New(media.Config{MaxFileBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	_, err = r.Encode(t.Context(), media.Pass{Name: "big", Dir: dir, Args: tone(time.Hour, "out.wav"), Timeout: time.Minute})
	if _, ok := errors.AsType[*media.ExitError](err); !ok {
		t.Fatalf("%v, want a failed pass", err)
	}
	if info, err := os.Stat(filepath.Join(dir, "out.wav")); err != nil || info.Size() > 1<<20 {
		t.Errorf("the file: %v, %v", info, err)
	}
}

// A pass that fills its folder is killed, by the default and by the caller's limits.
func TestAPassThatWritesTooMuchIsKilled(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	run := func(args []string, watch func(int64, int) error) error {
		_, err := r.Encode(t.Context(), media.Pass{Name: "fill", Dir: t.TempDir(), Args: args, Watch: watch, Timeout: time.Minute})
		return err
	}
	frames := func(n int) []string {
		return []string{"-f", "lavfi", "-i", fmt.Sprintf("color=s=16x16:r=100:d=%d", n), "-frames:v", strconv.Itoa(n), "-f", "image2", "%d.png"}
	}
	if err := run(frames(100), nil); err != nil {
		t.Errorf("100 files: %v", err)
	}
	if err := run(frames(101), nil); !errors.Is(err, media.ErrTooMuchOutput) {
		t.Errorf("101 files: %v", err)
	}
	// Only the kill ends this pass: it writes as fast as the sound plays.
	var seen int64
	endless := []string{"-re", "-f", "lavfi", "-i", "sine", "out.wav"}
	limit := errors.New("the caller's limit")
	err := run(endless, func(sizeBytes int64, files int) error {
		if seen = sizeBytes; files == 1 && sizeBytes > 0 {
			return limit
		}
		return nil
	})
	if !errors.Is(err, limit) || seen > 1<<20 {
		t.Errorf("an endless pass: %v, after %d bytes", err, seen)
	}
}

func TestConfinementLimitsMemory(t *testing.T) {
	t.Parallel()
	small, err := media.New(media.Config{MaxMemoryBytes: 200 << 20})
	if err != nil {
		t.Fatal(err)
	}
	// The filter reverse holds every frame until the end.
	fits := func(r *media.Runner, frames int) bool {
		source := fmt.Sprintf("testsrc2=s=1280x720:r=30,trim=end_frame=%d,format=yuv420p", frames) // 1.4 MB each
		var written int64
		_, err := r.Encode(t.Context(), media.Pass{Name: "hungry", Dir: t.TempDir(), Timeout: time.Minute,
			Args:       []string{"-f", "lavfi", "-i", source, "-vf", "reverse", "-f", "null", "-"},
			OnProgress: func(p media.Progress) { written = p.Frames }})
		return err == nil && written == int64(frames) // ffmpeg may treat the end of memory as the end of input
	}
	if !fits(small, 10) || fits(small, 200) || !fits(newRunner(t), 200) {
		t.Errorf("200 MB hold 14: %v, 280: %v; the default holds 280: %v", fits(small, 10), fits(small, 200), fits(newRunner(t), 200))
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
	// Without a Dir the pass may not write to any folder; a null output does not need
	// one.
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
