// The demonstration: its flags, its clips, its measurements, and the whole command against the real service.

package demo

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cutroom/internal/sandbox/measure"
	"cutroom/internal/testkit/apitest"
)

func TestMain(m *testing.M) { os.Exit(apitest.Main(m)) }

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

// Both clips have the stated length, the upright one is stored sideways with a rotation, and lamp and tick coincide to
// the frame.
func TestClips(t *testing.T) {
	dir := t.TempDir()
	chirp, err := tickSound(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scenes {
		s.length = 1400 * msec
		path := filepath.Join(dir, s.file+".mp4")
		if err := shoot(t.Context(), s, "", path); err != nil {
			t.Fatal(err)
		}
		m, err := probe(t.Context(), path)
		c, broken := probeClip(t.Context(), path)
		if video := m.First("video"); errors.Join(err, broken) != nil || c.width != s.width || c.height != s.height ||
			video.Packets != int(1.4*float64(s.rate)) || (video.Rotation == -90) != (s.height > s.width) {
			t.Errorf("%s: %+v, %v, %v", s.file, m, err, broken)
		}
		bright, err := brightness(t.Context(), path, s.lamp())
		if err != nil {
			t.Fatal(err)
		}
		if got := measure.Flashes(bright); len(got) != 2 || got[0] != 0 || got[1] != s.rate {
			t.Errorf("%s flashes in frames %v", s.file, got)
		}
		heard, err := decode(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if late, score := findChirp(heard, chirp, time.Second); late.Abs() > msec || score < 0.8 {
			t.Errorf("%s ticks %v late, score %.2f", s.file, late, score)
		}
		if late, score := findChirp(heard, chirp, 960*msec); (late - 40*msec).Abs() > msec {
			t.Errorf("%s ticks 40 ms late measure %v, score %.2f", s.file, late, score)
		}
	}
}

// A deviation must be measured as one: a sound that is quieter than requested, at another place, or audible where it
// was not requested.
func TestUnmix(t *testing.T) {
	noise := func(seed int) audio {
		s, err := stereo(t.Context(), "-f", "lavfi", "-i", fmt.Sprintf("anoisesrc=r=48000:a=0.2:c=pink:d=3:seed=%d", seed))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	voice, music := noise(1), noise(2)
	mixed := make(audio, at(time.Second))
	for i := range mixed {
		mixed[i] = 0.8*voice[at(time.Second)+i] + 0.3*music[i]
	}
	parts := []part{{name: "voice", sound: voice.cut(time.Second, 2*time.Second)}, {name: "silence", sound: make(audio, len(mixed))},
		{name: "music", sound: music.cut(0, time.Second)}}
	if g := unmix(mixed, parts); math.Abs(g[0]-0.8) > 1e-4 || !math.IsNaN(g[1]) || math.Abs(g[2]-0.3) > 1e-4 {
		t.Errorf("gains %v", g)
	}
	parts[0].sound = voice.cut(time.Second+5*msec, 2*time.Second+5*msec)
	if g := unmix(mixed, parts); g[0] > 0.7 {
		t.Errorf("a voice 5 ms early has gain %v", g[0])
	}
	if largest, relative := difference(voice, voice.plus(make(audio, len(voice)))); largest != 0 || !math.IsInf(relative, -1) {
		t.Errorf("a sound differs from itself by %v, %v dB", largest, relative)
	}
}

// TestWholeDemo runs the command against the real service, on three small clips, of which the last one has no sound.
func TestWholeDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the whole system")
	}
	binary, err := apitest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var args []string
	for i, source := range []string{"testsrc2=s=320x180:r=30", "testsrc2=s=180x320:r=25", "testsrc2=s=320x180:r=30"} {
		path := filepath.Join(dir, string(rune('a'+i))+".mp4")
		in := []string{"-f", "lavfi", "-i", source}
		if i < 2 {
			in = append(in, "-f", "lavfi", "-i", "anoisesrc=a=0.05:c=pink:r=48000")
		}
		if err := ffmpeg(t.Context(), "make clip", append(in, "-t", "3", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-ac", "2", "-c:a", "aac", path)...); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--video", path)
	}
	out := filepath.Join(dir, "out")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	err = Run(ctx, append(args, "--out", out, "--cutroom", binary), &stdout, &stderr)
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
