package demo

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"cutroom/internal/sandbox/demo/meter"
	"cutroom/internal/sandbox/demo/picture"
)

func TestFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.mp4")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args  []string
		fails string
	}{
		{nil, ""},
		{[]string{"--video", file, "--video", file, "--speech", file}, ""},
		{[]string{"--base-url", "http://x", "--token", "t"}, ""},
		{[]string{"-h"}, flag.ErrHelp.Error()},
		{[]string{"--base-url", "http://x"}, "needs --identity or --token"},
		{[]string{"--base-url", "http://x", "--token", "t", "--identity", "i"}, "one of them"},
		{[]string{"--token", "t"}, "go with --base-url"},
		{[]string{"--video", file + "x"}, "no such file"},
		{[]string{"--music", file}, "must be one of m4a"},
		{[]string{"--speech", filepath.Dir(file)}, "is not a file"},
		{[]string{"film.mp4"}, `unexpected argument "film.mp4"`},
	} {
		o, err := parse(tt.args, io.Discard)
		if tt.fails == "" && err != nil || tt.fails != "" && (err == nil || !strings.Contains(err.Error(), tt.fails)) {
			t.Errorf("%v: error %v, want %q", tt.args, err, tt.fails)
		}
		if len(tt.args) == 6 && tt.fails == "" && len(o.videos) != 2 {
			t.Errorf("videos %v", o.videos)
		}
	}
}

func TestMissingToolsAreNamed(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if err := checkTools(true); err == nil || !strings.Contains(err.Error(), "ffmpeg and ffprobe and espeak-ng not found") || !strings.Contains(err.Error(), "apt-get install ffmpeg espeak-ng") {
		t.Errorf("error %v", err)
	}
	for _, name := range []string{"ffmpeg", "ffprobe"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := checkTools(true); err == nil || !strings.HasPrefix(err.Error(), "espeak-ng not found") || !strings.Contains(err.Error(), "--speech") {
		t.Errorf("error %v", err)
	}
	if err := checkTools(false); err != nil {
		t.Error(err)
	}
}

func TestReport(t *testing.T) {
	s := summary{folder: t.TempDir(), files: []string{"film.mp4"}, account: account{3, 1, 2}, total: 61 * time.Second, took: []stage{{"Render the film", 8 * time.Second}}}
	if err := os.WriteFile(filepath.Join(s.folder, "film.mp4"), make([]byte, 1500), 0o600); err != nil {
		t.Fatal(err)
	}
	s.group = "film.mp4"
	s.equal("resolution", "2×2", "2×2")
	s.within("level", -20, -20.2, 0.3, "%.1f dB")
	s.span("length", time.Second, 1010*msec, 5*msec)
	s.tell("whole film", "-17 LUFS")
	s.loudness = []loudnessRow{{"voice", -20, -17}, {"background", -21, -29}}
	if s.off() != 1 || s.count() != 3 {
		t.Errorf("%d of %d off", s.off(), s.count())
	}
	plain := func(_, text string) string { return text }
	wide, narrow := strings.Join(s.lines(150, plain), "\n"), strings.Join(s.lines(50, plain), "\n")
	for _, want := range []string{
		"  ok  resolution  2×2       expected: 2×2", "  ok  level       -20.2 dB  expected: -20.0 dB ± 0.3",
		"  OFF length      1.010 s   expected: 1.000 s ± 5 ms", "  --  whole film  -17 LUFS\n",
		"voice over it          1.0 dB        12.0 dB  +11.0 dB", "3 at the start, 1 for the separation, 2 at the end",
		"film.mp4                     1.5 kB", "1 of 3 measurements are off.",
	} {
		if !strings.Contains(wide, want) {
			t.Errorf("no %q in\n%s", want, wide)
		}
	}
	if !strings.Contains(narrow, "  OFF length      1.010 s\n                  expected: 1.000 s ± 5 ms") {
		t.Errorf("on a narrow screen:\n%s", narrow)
	}
	if err := s.write(filepath.Join(s.folder, "report.txt")); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(s.folder, "report.txt")); err != nil || string(text) != wide+"\n" {
		t.Errorf("report.txt: %v\n%s", err, text)
	}
}

func TestStepsWithoutATerminal(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out)
	st := s.begin("Render")
	for i := range 100 {
		st.update(float64(i)/100, "working")
	}
	st.done("film.mp4")
	st.fail() // after the end: nothing
	failing := s.begin("Upload")
	failing.fail()
	if text := out.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "✓ Render") || !strings.Contains(text, "✗ Upload") || strings.ContainsAny(text, "\r\x1b") {
		t.Errorf("printed %q", text)
	}
}

// numbers is a scene whose frames say their number.
type numbers struct{ drawn *atomic.Int32 }

func (n numbers) Draw(c *picture.Canvas, frame int) {
	n.drawn.Add(1)
	for i := range c.Pix {
		c.Pix[i] = byte(frame)
	}
}
func (numbers) Size() (int, int)   { return 8, 4 }
func (numbers) Rate() int          { return 25 }
func (numbers) Lamp() picture.Lamp { return picture.Lamp{} }

func TestReelKeepsTheOrder(t *testing.T) {
	defer goleak.VerifyNone(t)
	scene := numbers{new(atomic.Int32)}
	last := 0.0
	r, err := newReel(scene, 200, func(share float64) { last = share })
	if err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(r)
	r.close()
	if err != nil || len(all) != 200*96 || last != 1 || scene.drawn.Load() != 200 {
		t.Fatalf("%d bytes, %d frames drawn, progress %v, %v", len(all), scene.drawn.Load(), last, err)
	}
	for i, v := range all {
		if v != byte(i/96) {
			t.Fatalf("byte %d is of frame %d", i, v)
		}
	}
}

func TestReelStopsEarly(t *testing.T) {
	defer goleak.VerifyNone(t)
	r, err := newReel(numbers{new(atomic.Int32)}, 10000, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r, make([]byte, 500)); err != nil {
		t.Fatal(err)
	}
	r.close()
}

// An upright clip lies down in its file and says so, as a phone's does.
func TestUprightClip(t *testing.T) {
	dir := t.TempDir()
	if err := record(t.Context(), dir, ""); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "upright.mp4")
	scene := picture.NewAurora()
	if err := shoot(t.Context(), scene, 400*msec, filepath.Join(dir, "aurora.wav"), path, func(float64) {}); err != nil {
		t.Fatal(err)
	}
	m, err := meter.Probe(t.Context(), path)
	if err != nil || m.Video == nil || m.Video.Width != 720 || m.Video.Height != 1280 || m.Video.Turn != -90 || m.Video.Frames != 10 {
		t.Fatalf("%+v, %v", m.Video, err)
	}
	// What a player shows is what was drawn.
	frames, err := meter.Frames(t.Context(), path, []time.Duration{0}, 720, 1280)
	if err != nil {
		t.Fatal(err)
	}
	drawn := picture.NewCanvas(720, 1280)
	scene.Draw(drawn, 0)
	sum := 0
	for i, v := range drawn.Pix {
		sum += max(int(v)-int(frames[0].Pix[i]), int(frames[0].Pix[i])-int(v))
	}
	if mean := float64(sum) / float64(len(drawn.Pix)); mean > 5 {
		t.Errorf("the film's picture is %.1f off what was drawn", mean)
	}
}

// TestWholeDemo runs the command against the real service, on two small clips.
func TestWholeDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the whole system")
	}
	binary := os.Getenv("CUTROOM_BIN")
	if binary == "" {
		binary = filepath.Join(t.TempDir(), "cutroom")
		if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "cutroom/cmd/cutroom").CombinedOutput(); err != nil {
			t.Fatalf("build cutroom: %v\n%s", err, out)
		}
	}
	dir := t.TempDir()
	var args []string
	for i, source := range []string{"testsrc2=s=320x180:r=30", "testsrc2=s=180x320:r=25"} {
		path := filepath.Join(dir, []string{"a.mp4", "b.mp4"}[i])
		if err := ffmpeg(t.Context(), "make clip", nil, "-f", "lavfi", "-t", "3", "-i", source, "-f", "lavfi", "-t", "3", "-i", "anoisesrc=a=0.05:c=pink:r=48000",
			"-preset", "ultrafast", "-pix_fmt", "yuv420p", "-ac", "2", "-c:a", "aac", path); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--video", path)
	}
	out := filepath.Join(dir, "out")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	err := Run(ctx, append(args, "--out", out, "--cutroom", binary), &stdout, &stderr)
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(out, "service.log"))
		t.Fatalf("%v\n%s\n%s\n%s", err, stdout.String(), stderr.String(), log[max(len(log)-4000, 0):])
	}
	for _, name := range []string{"film.mp4", "film-v3.mp4", "film.m4a", "contact-sheet.jpg", "report.txt", "stems/voice_all.flac", "stems/background.flac"} {
		if info, err := os.Stat(filepath.Join(out, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !strings.Contains(stdout.String(), "measurements are as expected") {
		t.Errorf("the last screen:\n%s", stdout.String())
	}
}

func TestInterruptedDemoLeavesNothingRunning(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Run(ctx, []string{"--out", filepath.Join(t.TempDir(), "out"), "--cutroom", "/nonexistent"}, io.Discard, io.Discard)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
