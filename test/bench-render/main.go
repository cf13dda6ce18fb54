// Command bench-render measures the render engine against one ffmpeg command
// that does the same job in a single filter graph, the practical lower bound of
// a cold render. It prints a table and puts it into docs/benchmarks.md.
//
//	go run ./test/bench-render [-runs 2] [-out docs/benchmarks.md] [-media dir]
//
// Both sides run in turn, several times. The best run of each counts, because other
// work on the machine can only make a run slower.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"cutroom/internal/diskcache"
	"cutroom/internal/engine"
	"cutroom/internal/media"
	"cutroom/internal/media/confine"
	"cutroom/internal/timeline"
)

func main() {
	confine.Main()
	runs := flag.Int("runs", 2, "runs of each measurement")
	out := flag.String("out", "docs/benchmarks.md", "page to write to; empty writes none")
	clips := flag.String("media", os.Getenv("CUTROOM_MEDIA_DIR"), "folder with real clips; empty makes artificial ones")
	only := flag.String("only", "cold,changes,large,hard,joins,many", "measurements to run")
	work := flag.String("work", "", "folder to work in, whose sources are reused; empty makes one and removes it")
	flag.Parse()
	if err := run(context.Background(), *runs, *out, *clips, *only, *work); err != nil {
		fmt.Fprintln(os.Stderr, "bench-render:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, runs int, outPath, clips, only, dir string) error {
	var err error
	if dir == "" {
		if dir, err = os.MkdirTemp("", "bench-render"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	}
	b := &bench{dir: dir, runs: runs, cores: runtime.NumCPU()}
	if b.runner, err = media.New(media.Config{}); err != nil {
		return err
	}
	if err := b.makeSources(ctx, clips); err != nil {
		return err
	}
	page := newReport(runs)
	for _, m := range []struct {
		name    string
		measure func(context.Context, *report) error
	}{{"cold", b.cold}, {"changes", b.changes}, {"large", b.large}, {"hard", b.hard}, {"joins", b.joins}, {"many", b.many}} {
		if !strings.Contains(only, m.name) {
			continue
		}
		if err := m.measure(ctx, page); err != nil {
			return err
		}
	}
	if outPath == "" {
		return nil
	}
	return page.Save(outPath)
}

// bench holds what the measurements share.
type bench struct {
	dir    string
	runs   int
	cores  int
	runner *media.Runner

	segments []timeline.Segment // six of about five seconds
	music    string
	big      string // 1080p
	renders  int
	graph    usage // the single graph's best, for ratios
}

// timeline is the job of the main measurements: six segments and music.
func (b *bench) timeline() timeline.Timeline {
	tl := timeline.Timeline{OutputKind: timeline.Video, Quality: timeline.Medium}
	tl.Segments = append(tl.Segments, b.segments...)
	tl.Clips = []timeline.Clip{{SourceKey: b.music, Volume: 0.3, Speed: 1}}
	return tl
}

// engineWith returns an engine with a cache in the given folder.
func (b *bench) engineWith(cacheDir string) (*engine.Engine, error) {
	cache, err := diskcache.New(diskcache.Config{Dir: cacheDir})
	if err != nil {
		return nil, err
	}
	return engine.New(engine.Config{Media: b.runner, Cores: b.cores, Cache: cache}), nil
}

// render measures one render.
func (b *bench) render(ctx context.Context, e *engine.Engine, tl timeline.Timeline) (usage, engine.Output, error) {
	b.renders++
	dir := filepath.Join(b.dir, fmt.Sprintf("job%d", b.renders))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return usage{}, engine.Output{}, err
	}
	defer os.RemoveAll(dir)
	sources := map[string]engine.Source{}
	for _, key := range tl.SourceKeys() {
		sum, err := hashOnce(key) // the service knows the hash from the upload
		if err != nil {
			return usage{}, engine.Output{}, err
		}
		sources[key] = engine.Source{Path: key, SHA256: sum}
	}
	var out engine.Output
	u, err := measured(func() (err error) {
		out, err = e.Render(ctx, engine.Job{Dir: dir, Timeline: tl, Sources: sources, CacheScope: "bench"})
		return err
	})
	s := out.Stats
	fmt.Fprintf(os.Stderr, "  render: analyse %.2f s, parts %.2f s, final %.2f s; %d of %d parts encoded\n",
		s.Analyse.Seconds(), s.Parts.Seconds(), s.Final.Seconds(), s.VideoParts-s.VideoPartsReused, s.VideoParts)
	return u, out, err
}

// cold compares a render from nothing with the single graph, in turn.
func (b *bench) cold(ctx context.Context, r *report) error {
	var best, graph, poster usage
	var out engine.Output
	for i := range b.runs {
		cacheDir := filepath.Join(b.dir, fmt.Sprintf("cold%d", i))
		e, err := b.engineWith(cacheDir)
		if err != nil {
			return err
		}
		u, o, err := b.render(ctx, e, b.timeline())
		if err != nil {
			return fmt.Errorf("cold render: %w", err)
		}
		best, out = best.better(u), o
		g, err := measured(func() error { return b.singleGraph(ctx, b.timeline(), filepath.Join(b.dir, "graph.mp4")) })
		if err != nil {
			return fmt.Errorf("single graph: %w", err)
		}
		graph = graph.better(g)
		if g, err = measured(func() error {
			return e.Poster(ctx, filepath.Join(b.dir, "graph.mp4"), filepath.Join(b.dir, "poster.jpg"))
		}); err != nil {
			return err
		}
		poster = poster.better(g)
		if err := os.RemoveAll(cacheDir); err != nil {
			return err
		}
	}
	b.graph = graph
	r.add("single graph, %d segments, %.1f s of %dx%d", graph, usage{}, len(b.segments), out.Duration.Seconds(), out.Width, out.Height)
	r.add("cold render", best, graph)
	r.add("the film's poster", poster, graph)
	return nil
}

// changes measures renders of an edited timeline, each from the cache of the
// one before the edit.
func (b *bench) changes(ctx context.Context, r *report) error {
	var music, fade, segment, alone, sound, plain, every usage
	for i := range b.runs {
		e, err := b.engineWith(filepath.Join(b.dir, fmt.Sprintf("warm%d", i)))
		if err != nil {
			return err
		}
		if _, _, err := b.render(ctx, e, b.timeline()); err != nil {
			return err
		}
		tl := b.timeline()
		tl.Clips[0].Volume, tl.Clips[0].Start = 0.6, 1500*time.Millisecond
		u, o, err := b.render(ctx, e, tl)
		if err != nil {
			return err
		}
		if o.Stats.FramesEncoded > 0 {
			return fmt.Errorf("a change of the music encoded %d frames", o.Stats.FramesEncoded)
		}
		music = music.better(u)

		tl.Clips[0].FadeOut = 2 * time.Second
		if u, _, err = b.render(ctx, e, tl); err != nil {
			return err
		}
		fade = fade.better(u)

		tl = b.timeline()
		tl.Segments[2].TrimStart += 700 * time.Millisecond
		u, o, err = b.render(ctx, e, tl)
		if err != nil {
			return err
		}
		segment = segment.better(u)
		only := b.timeline()
		only.Segments, only.Clips = tl.Segments[2:3], nil
		u, err = measured(func() error { return b.singleGraph(ctx, only, filepath.Join(b.dir, "alone.mp4")) })
		if err != nil {
			return err
		}
		alone = alone.better(u)

		fresh, err := b.engineWith(filepath.Join(b.dir, fmt.Sprintf("sound%d", i)))
		if err != nil {
			return err
		}
		tl = b.timeline()
		tl.OutputKind = timeline.Audio
		if u, _, err = b.render(ctx, fresh, tl); err != nil {
			return err
		}
		sound = sound.better(u)
		for _, m := range []struct {
			tl   timeline.Timeline
			best *usage
		}{{louder(tl), &plain}, {everySoundField(tl), &every}} {
			if u, _, err = b.render(ctx, fresh, m.tl); err != nil {
				return err
			}
			*m.best = m.best.better(u)
		}
	}
	r.add("again, music changed", music, b.graph)
	r.add("again, a fade changed", fade, b.graph)
	r.add("again, one of six segments changed", segment, b.graph)
	r.add("single graph of that segment alone", alone, b.graph)
	r.add("sound alone, from nothing", sound, b.graph)
	r.add("sound alone again, music changed", plain, b.graph)
	r.add("sound alone again, every field of the sound and joins (%.2f of the wall and %.2f of the CPU of the row above)", every, b.graph,
		every.wall.Seconds()/plain.wall.Seconds(), every.cpu.Seconds()/plain.cpu.Seconds())
	return nil
}

// louder is the timeline with its music changed.
func louder(tl timeline.Timeline) timeline.Timeline {
	tl.Clips = slices.Clone(tl.Clips)
	tl.Clips[0].Volume = 0.6
	return tl
}

// everySoundField is the timeline with everything that shapes the sound.
func everySoundField(tl timeline.Timeline) timeline.Timeline {
	points := []timeline.Point{{At: 0, Volume: 1}, {At: time.Second, Volume: 0.8}, {At: 3 * time.Second, Volume: 0.9},
		{At: time.Minute, Volume: 1}}
	tl.Segments = slices.Clone(tl.Segments)
	for i := range tl.Segments {
		tl.Segments[i].Points = points
		kind := []timeline.TransitionKind{timeline.Dissolve, timeline.FadeBlack}[i%2]
		tl.Segments[i].Transition = &timeline.Transition{Kind: kind, Duration: timeline.DefaultTransition}
	}
	music := tl.Clips[0]
	music.FadeIn, music.FadeOut, music.Loop, music.Points, music.Ducking = time.Second, 2*time.Second, true, points, &timeline.DefaultDucking
	music.SourceTrimEnd, music.End = 3500*time.Millisecond, 28*time.Second
	tl.Clips, tl.Loudness = []timeline.Clip{music}, &timeline.DefaultLoudness
	return tl
}

// large is cold in 1080p, where small machines lack the memory for several encoders at
// once.
func (b *bench) large(ctx context.Context, r *report) error {
	tl := timeline.Timeline{OutputKind: timeline.Video, Quality: timeline.Medium}
	for i := range 6 {
		from := time.Duration(i*137) * time.Millisecond
		tl.Segments = append(tl.Segments, timeline.Segment{
			SourceKey: b.big, Order: int64(i), Duration: time.Minute, TrimStart: from, TrimEnd: from + 5*time.Second, Volume: 1, Speed: 1,
		})
	}
	e, err := b.engineWith(filepath.Join(b.dir, "large"))
	if err != nil {
		return err
	}
	u, _, err := b.render(ctx, e, tl)
	if err != nil {
		return err
	}
	g, err := measured(func() error { return b.singleGraph(ctx, tl, filepath.Join(b.dir, "large.mp4")) })
	if err != nil {
		return err
	}
	r.add("single graph, 6 segments of 5 s, 1080p", g, usage{})
	r.add("cold render of the same", u, g)
	return nil
}

// hard is cold with sources that are expensive to decode: six segments, one long take
// and many short segments.
func (b *bench) hard(ctx context.Context, r *report) error {
	film := func(cuts ...[3]any) timeline.Timeline {
		tl := timeline.Timeline{OutputKind: timeline.Video, Quality: timeline.Medium}
		for i, c := range cuts {
			tl.Segments = append(tl.Segments, timeline.Segment{SourceKey: filepath.Join(b.dir, c[0].(string)), Order: int64(i),
				Duration:  time.Minute,
				TrimStart: time.Duration(c[1].(int)) * time.Millisecond, TrimEnd: time.Duration(c[2].(int)) * time.Millisecond, Volume: 1, Speed: 1})
		}
		return tl
	}
	var ones [][3]any
	for i := range 20 {
		ones = append(ones, [3]any{"hard.mp4", i*2137 + 300, i*2137 + 1300})
	}
	for _, m := range []struct {
		name string
		tl   timeline.Timeline
	}{
		{"6 segments, 1080p of 19 Mbit/s, a keyframe in 8 s",
			film([3]any{"hard.mp4", 3500, 8500}, [3]any{"hard-portrait.mp4", 5000, 9000}, [3]any{"hard-60.mp4", 6100, 11100},
				[3]any{"hard.mp4", 14000, 19000}, [3]any{"hard-60.mp4", 1000, 5000}, [3]any{"hard.mp4", 31000, 36000})},
		{"one take of 40 s of the same", film([3]any{"hard.mp4", 2300, 42300})},
		{"20 segments of 1 s of the same", film(ones...)},
	} {
		single := func() error { return b.singleGraph(ctx, m.tl, filepath.Join(b.dir, "hardgraph.mp4")) }
		if err := b.against(ctx, r, m.name, m.tl, single); err != nil {
			return err
		}
	}
	return nil
}

// against compares cold renders of a film with a single graph that makes the same film,
// in turn.
func (b *bench) against(ctx context.Context, r *report, film string, tl timeline.Timeline, single func() error) error {
	var best, graph usage
	for i := range b.runs {
		cacheDir := filepath.Join(b.dir, fmt.Sprintf("against%d", i))
		e, err := b.engineWith(cacheDir)
		if err != nil {
			return err
		}
		u, _, err := b.render(ctx, e, tl)
		if err != nil {
			return err
		}
		best = best.better(u)
		g, err := measured(single)
		if err != nil {
			return err
		}
		graph = graph.better(g)
		if err := os.RemoveAll(cacheDir); err != nil {
			return err
		}
	}
	r.add("single graph, %s", graph, usage{}, film)
	r.add("cold render of the same", best, graph)
	return nil
}

// many measures memory with 5 and with 20 segments of 1080p.
func (b *bench) many(ctx context.Context, r *report) error {
	for _, n := range []int{5, 20} {
		tl := timeline.Timeline{OutputKind: timeline.Video, Quality: timeline.Medium}
		for i := range n {
			from := time.Duration(i*137%4000) * time.Millisecond
			tl.Segments = append(tl.Segments, timeline.Segment{
				SourceKey: b.big, Order: int64(i), Duration: time.Minute, TrimStart: from, TrimEnd: from + time.Second, Volume: 1, Speed: 1,
			})
		}
		e, err := b.engineWith(filepath.Join(b.dir, fmt.Sprintf("many%d", n)))
		if err != nil {
			return err
		}
		u, _, err := b.render(ctx, e, tl)
		if err != nil {
			return err
		}
		r.add("%d segments of 1 s, 1080p", u, usage{}, n)
		if n == 20 {
			g, err := measured(func() error { return b.singleGraph(ctx, tl, filepath.Join(b.dir, "graph20.mp4")) })
			if err != nil {
				return err
			}
			r.add("the same as a single graph", g, usage{})
		}
	}
	return nil
}

func command(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		text := strings.TrimSpace(string(out))
		return fmt.Errorf("%s: %w: %s", filepath.Base(name), err, text[max(0, len(text)-400):])
	}
	return nil
}
