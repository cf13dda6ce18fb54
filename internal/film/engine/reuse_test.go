// Which parts a changed edit encodes again, and caches that lose, break or refuse parts.

package engine_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cutroom/internal/film/engine"
	"cutroom/internal/film/timeline"
	"cutroom/internal/storage/diskcache"
	"cutroom/internal/testkit/mediatest"
)

func picture(t testing.TB, d time.Duration) string {
	return mediatest.Clip(t, mediatest.Spec{Width: 160, Height: 90, Duration: d, Tone: 440})
}

func TestOnlyWhatChangedIsMadeAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	clips := mediatest.Clips(t, mediatest.Spec{Width: 160, Height: 90, Duration: 4 * time.Second, Tone: 440},
		mediatest.Spec{Width: 160, Height: 90, Duration: 3 * time.Second, Tone: 440}, mediatest.Spec{Tone: 660, Duration: 3 * time.Second})
	clip, other, music := clips[0], clips[1], clips[2]
	base := func() timeline.Timeline {
		tl := film(cut(clip, 0, 1033), cut(other, 217, 1500), cut(clip, 2100, 3210), cut(other, 1501, 2400))
		tl.Clips = []timeline.Clip{{SourceKey: music, Volume: 0.5, Speed: 1}}
		return tl
	}
	expect := func(what string, tl timeline.Timeline, encoded int) engine.Output {
		t.Helper()
		out := b.render(t, tl)
		// One frame that keeps the film in step with the timeline may be an extra part.
		n := out.Stats.VideoParts - out.Stats.VideoPartsReused
		if n != encoded && n != encoded+1 || encoded == 0 && out.Stats.FramesEncoded > 1 {
			t.Errorf("%s: %d parts of %d frames encoded, want %d", what, n, out.Stats.FramesEncoded, encoded)
		}
		return out
	}
	first := mediatest.Digest(t, expect("first time", base(), 4).Path)

	tl := base()
	tl.Clips[0].Volume, tl.Clips[0].Start = 1, 100*time.Millisecond
	tl.Segments[1].Volume, tl.Loudness = 0.2, &timeline.DefaultLoudness
	tl.Directives = []timeline.Directive{directive(500, 900, 0, 1, music)}
	expect("other sound", tl, 0)

	tl = base()
	tl.Segments[1].TrimEnd += 250 * time.Millisecond
	expect("one segment longer", tl, 1)
	tl = base()
	tl.Segments = []timeline.Segment{tl.Segments[2], tl.Segments[1], tl.Segments[0]}
	tl.Segments[0].Order, tl.Segments[2].Order = 0, 2
	expect("order changed, one segment less", tl, 0)
	tl = base()
	tl.Quality = timeline.Medium
	expect("another quality", tl, 4)
	tl = base()
	tl.OutputKind = timeline.Audio
	if out := b.render(t, tl); out.Stats.VideoParts != 0 {
		t.Errorf("sound alone has video parts: %+v", out.Stats)
	}
	if again := mediatest.Digest(t, expect("the first one again", base(), 0).Path); again != first {
		t.Error("the same timeline gave another film")
	}
}

// A long segment is made in chunks on the source's own grid, so trimming or splitting it does not change the inner
// chunks.
func TestLongSegmentsAreMadeInPieces(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	clip := mediatest.Clip(t, mediatest.Spec{Width: 64, Height: 64, FPS: "10", GOP: 83, Duration: 30 * time.Second})
	out := b.render(t, film(cut(clip, 0, 0)))
	if out.Stats.VideoParts != 4 {
		t.Errorf("%d parts for 30 s", out.Stats.VideoParts)
	}
	out = b.render(t, film(cut(clip, 1100, 28500)))
	if n := out.Stats.VideoParts - out.Stats.VideoPartsReused; n != 2 {
		t.Errorf("trimmed at both ends: %d of %d parts encoded, want 2", n, out.Stats.VideoParts)
	}
	out = b.render(t, film(cut(clip, 0, 13000), cut(clip, 13000, 0)))
	if n := out.Stats.VideoParts - out.Stats.VideoPartsReused; n > 3 {
		t.Errorf("split in two: %d of %d parts encoded", n, out.Stats.VideoParts)
	}
	mediatest.ConstantRate(t, out.Path, 10, 300, 20*time.Microsecond)
}

// Changing a fade at an end of the film encodes at most the seconds at that end, however long the fades are.
func TestChangedEndsEncodeTheirPartsAlone(t *testing.T) {
	t.Parallel()
	clip := mediatest.Clip(t, mediatest.Spec{Width: 64, Height: 64, FPS: "10", GOP: 83, Duration: 30 * time.Second})
	whole, cuts := film(cut(clip, 0, 0)), film(cut(clip, 0, 12000), cut(clip, 13000, 14000), cut(clip, 15000, 28000))
	cuts.Segments[1].Transition = &timeline.Transition{Kind: timeline.Push, Direction: timeline.Up, Duration: 500 * time.Millisecond}
	for _, tl := range []timeline.Timeline{whole, cuts} {
		b := newBench(t)
		fade := func(ms int64) *timeline.FilmFade {
			return &timeline.FilmFade{Colour: timeline.White, Duration: timeline.Milliseconds(ms)}
		}
		tl.FadeIn, tl.FadeOut = fade(500), fade(700)
		b.render(t, tl)
		for _, change := range []func(){
			func() { tl.FadeOut = fade(5000) }, func() { tl.FadeIn = fade(100) }, func() { tl.FadeOut = &timeline.DefaultFilmFade }, func() { tl.FadeIn = fade(3300) },
		} {
			change()
			out := b.render(t, tl)
			if n := out.Stats.FramesEncoded; n == 0 || n > 60 || out.Stats.VideoParts-out.Stats.VideoPartsReused > 2 {
				t.Errorf("%+v, %+v: %d frames encoded, %d of %d parts reused", *tl.FadeIn, *tl.FadeOut, n, out.Stats.VideoPartsReused, out.Stats.VideoParts)
			}
		}
		tl.OutputKind = timeline.Audio
		if out := b.render(t, tl); out.Stats.VideoParts != 0 {
			t.Errorf("sound alone: %+v", out.Stats)
		}
	}
}

// A cache that loses, breaks or refuses parts only costs time. Parts belong to the user for whom they were made.
func TestCachesThatHaveNothingCostTimeOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cache, err := diskcache.New(diskcache.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, func(c *engine.Config) { c.Cache = cache })
	tl := film(cut(picture(t, time.Second), 0, 0))
	good := mediatest.Digest(t, b.render(t, tl).Path)
	job := engine.Job{Dir: t.TempDir(), Timeline: tl, Sources: sources(tl), CacheScope: "another"}
	if out, err := b.engine.Render(t.Context(), job); err != nil || out.Stats.VideoPartsReused != 0 {
		t.Errorf("for another user: %+v, %v", out.Stats, err)
	}
	for name, cache := range map[string]engine.PartCache{"refusing cache": refusing{}, "missing cache": nil} {
		without := newBench(t, func(c *engine.Config) { c.Cache = cache })
		if d := mediatest.Digest(t, without.render(t, tl).Path); d != good {
			t.Errorf("another film with a %s", name)
		}
	}
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, ".f32") {
			return err
		}
		return os.Truncate(path, 100)
	})
	if err != nil {
		t.Fatal(err)
	}
	out := b.render(t, tl)
	if out.Stats.VideoPartsReused != 0 {
		t.Errorf("torn parts were used: %+v", out.Stats)
	}
	if d := mediatest.Digest(t, out.Path); d != good {
		t.Error("another film from a torn cache")
	}
}

type refusing struct{}

func (refusing) Get(context.Context, string, string, string) (bool, error) {
	return false, errors.New("no")
}
func (refusing) Put(context.Context, string, string, string) error { return errors.New("no") }
