// Golden plans: every argument of every pass, in testdata. Each is rendered, too. -update rewrites them.

package engine

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cutroom/internal/film/media"
	"cutroom/internal/film/timeline"
	"cutroom/internal/storage/diskcache"
	"cutroom/internal/testkit/mediatest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// describe prints a plan the way it runs, one argument per line, with the clips' names in place of their paths.
func describe(p *Plan, names map[string]string) string {
	var b strings.Builder
	args := func(list []string) {
		for _, a := range list {
			for path, name := range names {
				a = strings.ReplaceAll(a, path, name)
			}
			fmt.Fprintf(&b, "    %s\n", a)
		}
	}
	fmt.Fprintf(&b, "%s: %dx%d at %v, %d frames, %d samples\n", p.Kind, p.Canvas.Width, p.Canvas.Height, p.Canvas.Rate, p.Frames, p.Samples)
	for _, v := range p.Parts {
		pass := v.pass(v.File, v.keyframes(0))
		fmt.Fprintf(&b, "\n%s: %d frames\n", pass.Name, v.Frames)
		args(pass.Args)
	}
	for _, s := range p.Audio {
		pass := s.pass(s.File, s.File+".log")
		fmt.Fprintf(&b, "\n%s: samples %d to %d\n", pass.Name, s.From, s.To)
		args(pass.Args)
	}
	for _, s := range p.Stretches {
		fmt.Fprintf(&b, "\nstretch %s from %.1f at tempo %g into %s: %d samples\n", s.Audio.File, s.From, s.Tempo, s.File, s.Length)
	}
	b.WriteString("\nmix\n")
	for _, m := range p.Regions {
		fmt.Fprintf(&b, "    %s: %s from %d, plays %d to %d at volume %g, fades %d and %d", m.Name, m.File, m.Offset, m.Start, m.End, m.Volume, m.FadeIn.Length, m.FadeOut.Length)
		for _, s := range m.Mutes {
			fmt.Fprintf(&b, ", silent %d to %d (fades %d and %d)", s.Start, s.End, s.FadeIn, s.FadeOut)
		}
		b.WriteString("\n")
	}
	if p.Kind == timeline.Audio {
		b.WriteString("\nmix to m4a\n")
		args(audioPass(p, "output.m4a", time.Unix(0, 0)))
		return b.String()
	}
	b.WriteString("\nparts.txt\n")
	for line := range strings.Lines(concatList(p)) {
		b.WriteString("    " + line)
	}
	b.WriteString("\nconcat, mix, mux\n")
	args(videoPass(p, true, "output.mp4", time.Unix(0, 0)))
	return b.String()
}

func newCache(t *testing.T) *diskcache.Cache {
	t.Helper()
	cache, err := diskcache.New(diskcache.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return cache
}

func newEngine(t *testing.T, cache PartCache) *Engine {
	t.Helper()
	runner, err := media.New(media.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{Media: runner, Cores: 2, Cache: cache})
}

// jobOf is a render whose sources' keys are also their paths and digests.
func jobOf(t *testing.T, tl timeline.Timeline) Job {
	sources := map[string]Source{}
	for _, key := range tl.SourceKeys() {
		sources[key] = Source{Path: key, SHA256: key}
	}
	return Job{Dir: t.TempDir(), Timeline: tl, Sources: sources}
}

// Every golden plan is also rendered, so that no golden plan contains a command that ffmpeg refuses.
func TestPlans(t *testing.T) {
	t.Parallel()
	engine := newEngine(t, newCache(t)) // the clips are analysed once
	clips := mediatest.Clips(t,
		mediatest.Spec{Width: 320, Height: 180, FPS: "30000/1001", Duration: 8 * time.Second, Tone: 440, GOP: 30},
		mediatest.Spec{Width: 181, Height: 321, FPS: "25", Duration: 3 * time.Second, Tone: 330, Channels: 1, SampleRate: 44100, AudioCodec: "flac", PixelFormat: "yuv444p", Container: "mkv"},
		mediatest.Spec{Width: 160, Height: 120, FPS: "50", Duration: 2 * time.Second, Output: []string{"-vf", "setfield=tff,setsar=4/3", "-flags", "+ildct+ilme"}},
		mediatest.Spec{Duration: 4 * time.Second, Tone: 660}, mediatest.Spec{Duration: 8 * time.Second, Tone: 880})
	wide, tall, mute, music, voice := clips[0], clips[1], clips[2], clips[3], clips[4]
	names := map[string]string{wide: "/media/wide.mp4", tall: "/media/tall.mkv", mute: "/media/mute.mp4", music: "/media/music.wav", voice: "/media/voice.wav"}
	segment := func(path string, from, to int64, speed float64) timeline.Segment {
		s := of(path, ms(from, to))
		s.Speed = speed
		return s
	}
	film := func(s ...timeline.Segment) timeline.Timeline {
		tl := filmOf(s...)
		tl.Quality = timeline.Medium
		return tl
	}
	mixed := film(segment(wide, 1234, 3234, 1), segment(tall, 0, 0, 1), segment(mute, 500, 1500, 0.5))
	mixed.Quality = timeline.High
	stems := film(segment(wide, 2000, 4000, 1), segment(wide, 4000, 6000, 1))
	stems.Clips = []timeline.Clip{{SourceKey: music, Start: 1500 * time.Millisecond, SourceTrimStart: time.Second, Volume: 0.4, Speed: 1.5}}
	stems.Directives = []timeline.Directive{{ID: "d", Range: timeline.Range{Start: time.Second, End: 3 * time.Second}, MuteOriginal: true,
		SourceOffset: 3 * time.Second, AppliedSpeed: 1, Selections: []timeline.Selection{{StemID: "voice_all", SourceKey: voice, Volume: 1.5}}}}
	audioAlone := stems
	audioAlone.OutputKind = timeline.Audio
	long := film(segment(wide, 0, 0, 0.5))
	long.Quality = timeline.Low
	looks := film(segment(wide, 500, 1500, 1), segment(wide, 2000, 3000, 1), segment(tall, 0, 1000, 1), segment(mute, 500, 1000, 0.5))
	looks.Quality = timeline.Low
	looks.FadeIn = &timeline.FilmFade{Colour: timeline.White, Duration: 200 * time.Millisecond}
	looks.Segments[0].Crop = timeline.Crop{Left: 0.1}
	looks.Segments[0].Moves = []timeline.Move{{Scale: 1, X: 0.5, Y: 0.5}, {At: time.Second, Scale: 2, X: 0.25, Y: 0.5}}
	looks.Segments[0].Adjust = timeline.Adjust{Exposure: 0.5, Warmth: 0.2}
	looks.Segments[1].Reverse = true
	looks.Segments[2].Fit = timeline.Blur
	looks.Segments[3].Smooth = true
	for i, kind := range []timeline.TransitionKind{timeline.Wipe, timeline.Push, timeline.Slide} {
		direction := []timeline.Direction{timeline.Left, timeline.Up, timeline.Right}[i]
		looks.Segments[i+1].Transition = &timeline.Transition{Kind: kind, Duration: 300 * time.Millisecond, Direction: direction}
	}

	for name, tl := range map[string]timeline.Timeline{
		"one segment": film(segment(wide, 0, 2000, 1)), "mixed sources": mixed, "music and stems": stems, "sound alone": audioAlone,
		"looks and joins": looks, "in pieces at half speed": long,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := engine.newRun(jobOf(t, tl))
			out, err := r.render(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			checkGolden(t, filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".golden"), describe(r.plan, names))
			if out.Frames != r.plan.Frames || out.Samples != r.plan.Samples {
				t.Errorf("rendered %d frames and %d samples, planned %d and %d", out.Frames, out.Samples, r.plan.Frames, r.plan.Samples)
			}
		})
	}
}

func checkGolden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	a, b := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Fatalf("%s, line %d:\n got %s\nwant %s\n(go test ./internal/film/engine -run TestPlans -update rewrites it)", path, i+1, b[i], a[i])
		}
	}
	t.Fatalf("%s: %d lines, want %d", path, len(b), len(a))
}
