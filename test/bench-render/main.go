// Command bench-render measures the render engine against one ffmpeg command that does the same job in a single filter
// graph, the practical lower bound of a cold render. It prints a table and puts it into docs/benchmarks.md.
//
//	go run ./test/bench-render [-runs 2] [-out docs/benchmarks.md] [-media dir]
//
// Both sides run in turn, several times. The best run of each counts, because other work on the machine can only make a
// run slower.
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

	"cutroom/internal/film/engine"
	"cutroom/internal/film/media"
	"cutroom/internal/film/media/confine"
	"cutroom/internal/film/timeline"
	"cutroom/internal/storage/disk"
	"cutroom/internal/storage/diskcache"
)

func main() {
	confine.Main()
	runs := flag.Int("runs", 2, "runs of each measurement")
	out := flag.String("out", "docs/benchmarks.md", "page to write to; empty writes none")
	clips := flag.String("media", os.Getenv("CUTROOM_MEDIA_DIR"), "folder with real clips; empty makes artificial ones")
	only := flag.String("only", "cold,changes,hard,joins,look,reverse", "measurements to run")
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
	type measurement struct {
		name    string
		measure func(context.Context, *report) error
	}
	all := []measurement{{"cold", b.cold}, {"changes", b.changes}, {"hard", b.hard}, {"joins", b.joins}, {"look", b.look},
		{"reverse", b.reverse}}
	chosen := strings.Split(only, ",")
	for _, name := range chosen {
		if !slices.ContainsFunc(all, func(m measurement) bool { return m.name == name }) {
			return fmt.Errorf("-only %s: there is no such measurement", name)
		}
	}
	if b.runner, err = media.New(media.Config{}); err != nil {
		return err
	}
	if err := b.makeSources(ctx, clips); err != nil {
		return err
	}
	page := newReport(runs)
	for _, m := range all {
		if !slices.Contains(chosen, m.name) {
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

	music   string
	renders int
	graph   usage // the single graph's best, for ratios
}

// cut is a stretch of a source of makeSources, in milliseconds.
type cut struct {
	source   string
	from, to int64
}

// film plays cuts one after the other.
func (b *bench) film(cuts ...cut) timeline.Timeline {
	tl := timeline.Timeline{OutputKind: timeline.Video, Quality: timeline.Medium}
	for i, c := range cuts {
		tl.Segments = append(tl.Segments, timeline.Segment{SourceKey: filepath.Join(b.dir, c.source), Order: int64(i), Duration: time.Hour,
			TrimStart: timeline.Milliseconds(c.from), TrimEnd: timeline.Milliseconds(c.to), Volume: 1, Speed: 1})
	}
	return tl
}

// repeated returns n cuts of a source, each of the given length and starting step after the one before.
func repeated(n int, source string, length, step int64) (cuts []cut) {
	for i := range int64(n) {
		cuts = append(cuts, cut{source, i*step + 300, i*step + 300 + length})
	}
	return cuts
}

// timeline is the job of the main measurements: six segments of about five seconds, and music.
func (b *bench) timeline() timeline.Timeline {
	const hd, sd = "phone0.mp4", "phone1.mp4"
	tl := b.film(cut{hd, 500, 5500}, cut{sd, 1000, 6000}, cut{hd, 7000, 12000}, cut{sd, 7300, 12300},
		cut{hd, 2000, 7000}, cut{hd, 9000, 14000})
	tl.Clips = []timeline.Clip{{SourceKey: b.music, Volume: 0.3, Speed: 1}}
	return tl
}

// engineWith returns an engine with a cache in a new folder.
func (b *bench) engineWith(cacheDir string) (*engine.Engine, error) {
	cache, err := diskcache.New(diskcache.Config{Dir: filepath.Join(b.dir, cacheDir)})
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
		sum, _, err := disk.Digest(ctx, key) // the service knows the hash from the upload
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

// against compares cold renders of a film with a single graph that makes the same film, in turn.
func (b *bench) against(ctx context.Context, tl timeline.Timeline, g graph) (best, single usage, out engine.Output, err error) {
	for i := range b.runs {
		cacheDir := fmt.Sprintf("cold%d", i)
		e, err := b.engineWith(cacheDir)
		if err != nil {
			return best, single, out, err
		}
		u, film, err := b.render(ctx, e, tl)
		if err != nil {
			return best, single, out, err
		}
		best, out = best.better(u), film
		if u, err = measured(func() error { return g.make(ctx, tl, b.graphPath()) }); err != nil {
			return best, single, out, err
		}
		single = single.better(u)
		if err := os.RemoveAll(filepath.Join(b.dir, cacheDir)); err != nil {
			return best, single, out, err
		}
	}
	return best, single, out, nil
}

func (b *bench) graphPath() string { return filepath.Join(b.dir, "graph.mp4") }

// compare adds the rows of a film and of its single graph.
func (b *bench) compare(ctx context.Context, r *report, name string, tl timeline.Timeline, g graph) error {
	best, single, _, err := b.against(ctx, tl, g)
	if err != nil {
		return err
	}
	r.add("single graph, "+name, single, usage{})
	r.add("cold render of the same", best, single)
	return nil
}

// cold compares a render from nothing with the single graph, and measures a poster.
func (b *bench) cold(ctx context.Context, r *report) error {
	best, single, out, err := b.against(ctx, b.timeline(), fitted(1280, 720))
	if err != nil {
		return err
	}
	e, err := b.engineWith("poster")
	if err != nil {
		return err
	}
	poster, err := measured(func() error { return e.Poster(ctx, b.graphPath(), filepath.Join(b.dir, "poster.jpg")) })
	if err != nil {
		return err
	}
	b.graph = single
	r.add(fmt.Sprintf("single graph, %d segments, %.1f s of %dx%d", len(b.timeline().Segments), out.Duration.Seconds(), out.Width, out.Height),
		single, usage{})
	r.add("cold render", best, single)
	r.add("the film's poster", poster, single)
	return nil
}

// changes measures renders of an edited timeline, each from the cache of the render before the edit.
func (b *bench) changes(ctx context.Context, r *report) error {
	edits := []struct {
		name string
		edit func(tl *timeline.Timeline)
		cold bool // begins with an empty cache
	}{
		{"again, music changed", louder, false},
		{"again, one of six segments changed", func(tl *timeline.Timeline) { tl.Segments[2].TrimStart += 700 * time.Millisecond }, false},
		{"sound alone, from nothing", func(tl *timeline.Timeline) { tl.OutputKind = timeline.Audio }, true},
		{"sound alone again, music changed", func(tl *timeline.Timeline) { tl.OutputKind = timeline.Audio; louder(tl) }, false},
		{"sound alone again, every field of the sound and joins", func(tl *timeline.Timeline) {
			tl.OutputKind = timeline.Audio
			everySoundField(tl)
		}, false},
	}
	best := make([]usage, len(edits))
	for i := range b.runs {
		e, err := b.engineWith(fmt.Sprintf("warm%d", i))
		if err != nil {
			return err
		}
		if _, _, err := b.render(ctx, e, b.timeline()); err != nil {
			return err
		}
		for k, m := range edits {
			if m.cold {
				if e, err = b.engineWith(fmt.Sprintf("sound%d", i)); err != nil {
					return err
				}
			}
			tl := b.timeline()
			m.edit(&tl)
			u, _, err := b.render(ctx, e, tl)
			if err != nil {
				return err
			}
			best[k] = best[k].better(u)
		}
	}
	for k, m := range edits {
		r.add(m.name, best[k], b.graph)
	}
	return nil
}

func louder(tl *timeline.Timeline) {
	tl.Clips[0].Volume, tl.Clips[0].Start = 0.6, 1500*time.Millisecond
}

// everySoundField sets everything that shapes the sound.
func everySoundField(tl *timeline.Timeline) {
	points := []timeline.Point{{At: 0, Volume: 1}, {At: time.Second, Volume: 0.8}, {At: 3 * time.Second, Volume: 0.9},
		{At: time.Minute, Volume: 1}}
	for i := range tl.Segments {
		kind := []timeline.TransitionKind{timeline.Dissolve, timeline.FadeBlack}[i%2]
		tl.Segments[i].Points, tl.Segments[i].Transition = points, &timeline.Transition{Kind: kind, Duration: timeline.DefaultTransition}
	}
	music := &tl.Clips[0]
	music.FadeIn, music.FadeOut, music.Loop, music.Points, music.Ducking = time.Second, 2*time.Second, true, points, &timeline.DefaultDucking
	music.SourceTrimEnd, music.End = 3500*time.Millisecond, 28*time.Second
	tl.Loudness = &timeline.DefaultLoudness
}

// hard is cold in 1080p, where small machines lack the memory for several encoders at once, and with sources that are
// expensive to decode: six segments, one long take and many short segments.
func (b *bench) hard(ctx context.Context, r *report) error {
	const hard, fast = "hard.mp4", "hard-60.mp4"
	for _, m := range []struct {
		name string
		cuts []cut
	}{
		{"6 segments of 5 s, 1080p", repeated(6, "big.mp4", 5000, 137)},
		{"6 segments, 1080p of 19 Mbit/s, a keyframe in 8 s", []cut{{hard, 3500, 8500}, {"hard-portrait.mp4", 5000, 9000},
			{fast, 6100, 11100}, {hard, 14000, 19000}, {fast, 1000, 5000}, {hard, 31000, 36000}}},
		{"one take of 40 s of the same", []cut{{hard, 2300, 42300}}},
		{"20 segments of 1 s of the same", repeated(20, hard, 1000, 2137)},
	} {
		if err := b.compare(ctx, r, m.name, b.film(m.cuts...), fitted(1920, 1080)); err != nil {
			return err
		}
	}
	return nil
}

// joins measures films with joins, fades at both ends, a blurred background, cropped and enlarged pictures.
func (b *bench) joins(ctx context.Context, r *report) error {
	joined := func(source string, join timeline.Transition) timeline.Timeline {
		tl := b.film(repeated(7, source, 5000, 1370)...)
		for i := range tl.Segments {
			join.Duration = 500 * time.Millisecond
			tl.Segments[i].Transition = &join
		}
		return tl
	}
	dissolve := timeline.Transition{Kind: timeline.Dissolve}
	push := timeline.Transition{Kind: timeline.Push, Direction: timeline.Left}
	ends := b.film(repeated(6, "hard.mp4", 5000, 1370)...)
	ends.FadeIn = &timeline.FilmFade{Colour: timeline.Black, Duration: time.Second}
	ends.FadeOut = ends.FadeIn
	portrait := func(n int, source string, canvas timeline.Canvas) timeline.Timeline {
		tl := b.film(repeated(n, source, 5000, 1370)...)
		canvas.Aspect = "9:16"
		tl.Canvas = &canvas
		return tl
	}
	side := int64(1080)
	for _, m := range []struct {
		name string
		g    graph
		tl   timeline.Timeline
	}{
		{"7 segments, 720p, six dissolves of 500 ms", overlapping, joined("phone0.mp4", dissolve)},
		{"7 segments, 1080p, a keyframe in 8 s, six dissolves of 500 ms", overlapping, joined("hard.mp4", dissolve)},
		{"7 segments, 720p, six pushes of 500 ms", overlapping, joined("phone0.mp4", push)},
		{"7 segments, 1080p, a keyframe in 8 s, six pushes of 500 ms", overlapping, joined("hard.mp4", push)},
		{"6 segments, 1080p, a keyframe in 8 s, both ends fading for 1 s",
			graph{picture: steady}, ends},
		{"6 segments of 720p enlarged to 1080x1920", enlarged,
			portrait(6, "phone0.mp4", timeline.Canvas{ShortSide: &side, Fit: timeline.Contain})},
		{"3 segments of 1080p on blurred bars of 1080x1920", blurred, portrait(3, "hard.mp4", timeline.Canvas{Fit: timeline.Blur})},
		{"3 segments of 1080p cropped to 1080x1920", cropped, portrait(3, "hard.mp4", timeline.Canvas{Fit: timeline.Cover})},
	} {
		if err := b.compare(ctx, r, m.name, m.tl, m.g); err != nil {
			return err
		}
	}
	return nil
}

// look measures films with a look and a slow zoom on each segment, and what an adjustment adds to a film.
func (b *bench) look(ctx context.Context, r *report) error {
	plain := b.film(repeated(6, "hard.mp4", 5000, 1370)...)
	adjusted, moving := plain, plain
	adjusted.Segments = slices.Clone(plain.Segments)
	for i := range adjusted.Segments {
		adjusted.Segments[i].Adjust = timeline.Adjust{Exposure: 0.1, Contrast: 0.1, Warmth: 0.3}
	}
	moving.Segments = slices.Clone(adjusted.Segments)
	for i := range moving.Segments {
		moving.Segments[i].Moves = []timeline.Move{timeline.DefaultMove, {At: 5 * time.Second, Scale: 1.2, X: 0.5, Y: 0.5}}
	}
	const name = "6 segments, 1080p, a keyframe in 8 s"
	if err := b.compare(ctx, r, name+", a look and a slow zoom on each", moving, zoomed); err != nil {
		return err
	}
	var without, with usage
	for i := range b.runs {
		for tl, best := range map[*timeline.Timeline]*usage{&plain: &without, &adjusted: &with} {
			e, err := b.engineWith(fmt.Sprintf("look%d-%d", i, b.renders))
			if err != nil {
				return err
			}
			u, _, err := b.render(ctx, e, *tl)
			if err != nil {
				return err
			}
			*best = best.better(u)
		}
	}
	r.add("cold render of "+name, without, usage{})
	r.add("with a look on each, beside the row above", with, without)
	return nil
}

// reverse measures a film that plays backwards. Its memory is to be compared with that of the same film forwards.
func (b *bench) reverse(ctx context.Context, r *report) error {
	forwards := b.film(cut{"hard.mp4", 300, 20300})
	backwards := forwards
	backwards.Segments = slices.Clone(forwards.Segments)
	backwards.Segments[0].Reverse = true
	if err := b.compare(ctx, r, "20 s of 1080p, a keyframe in 8 s", forwards, graph{picture: steady}); err != nil {
		return err
	}
	return b.compare(ctx, r, "20 s of 1080p, a keyframe in 8 s, backwards", backwards, graph{picture: steady + ",reverse", sound: "areverse,"})
}

func command(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		text := strings.TrimSpace(string(out))
		return fmt.Errorf("%s: %w: %s", filepath.Base(name), err, text[max(0, len(text)-400):])
	}
	return nil
}
