package engine_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"cutroom/internal/base/fault"
	"cutroom/internal/film/engine"
	"cutroom/internal/film/media"
	"cutroom/internal/film/media/confine"
	"cutroom/internal/film/timeline"
	"cutroom/internal/storage/diskcache"
)

func TestMain(m *testing.M) {
	confine.Main()
	goleak.VerifyTestMain(m)
}

// bench is an engine with a cache of its own.
type bench struct {
	engine *engine.Engine
	cache  *diskcache.Cache
}

// ffmpeg returns a shared runner, which checks the kernel only once.
var ffmpeg = sync.OnceValues(func() (*media.Runner, error) { return media.New(media.Config{}) })

func newBench(t testing.TB, change ...func(*engine.Config)) *bench {
	t.Helper()
	runner, err := ffmpeg()
	if err != nil {
		t.Fatal(err)
	}
	cache, err := diskcache.New(diskcache.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	cfg := engine.Config{Media: runner, Cores: 2, Cache: cache}
	for _, c := range change {
		c(&cfg)
	}
	return &bench{engine.New(cfg), cache}
}

// render renders, checks that the progress never falls, and returns the output.
func (b *bench) render(t testing.TB, tl timeline.Timeline) engine.Output {
	t.Helper()
	out, err := b.try(t, tl)
	if err != nil {
		t.Fatalf("render: %v", err)
	}
	return out
}

// fails renders and returns the client's error as "reason: sentence".
func (b *bench) fails(t testing.TB, tl timeline.Timeline) string {
	t.Helper()
	_, err := b.try(t, tl)
	f := fault.As(err)
	if f == nil {
		t.Fatalf("got %v, want a failure for the client", err)
	}
	return reads(f)
}

func reads(f *fault.Error) string { return string(f.Reason) + ": " + f.Answer() }

func (b *bench) try(t testing.TB, tl timeline.Timeline) (engine.Output, error) {
	t.Helper()
	if err := tl.Validate(timeline.MultipartNames); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	shown := -1
	var planned []time.Duration
	onPlanned := func(length time.Duration) { planned = append(planned, length) }
	job := engine.Job{Dir: dir, Timeline: tl, Sources: sources(tl), CacheScope: "user", OnPlanned: onPlanned, OnProgress: func(p int) {
		if len(planned) != 1 {
			t.Errorf("planned %v before anything was done", planned)
		}
		if p < shown || p > 99 {
			t.Errorf("progress went from %d to %d", shown, p)
		}
		shown = p
	}}
	out, err := b.engine.Render(context.Background(), job)
	if err == nil {
		if len(planned) != 1 || planned[0] != out.Duration {
			t.Errorf("a film of %v was planned as %v", out.Duration, planned)
		}
		left, readErr := os.ReadDir(dir)
		if readErr != nil || len(left) != 1 || left[0].Name() != filepath.Base(out.Path) {
			t.Errorf("left in the job's folder: %v, %v", left, readErr)
		}
	}
	return out, err
}

// sources uses every key as the path of its file and as its digest.
func sources(tl timeline.Timeline) map[string]engine.Source {
	m := map[string]engine.Source{}
	for _, key := range tl.SourceKeys() {
		m[key] = engine.Source{Path: key, SHA256: key}
	}
	return m
}

// film is a timeline of the given segments.
func film(segments ...timeline.Segment) timeline.Timeline {
	for i := range segments {
		segments[i].Order = int64(i)
	}
	return timeline.Timeline{Segments: segments, OutputKind: timeline.Video, Quality: timeline.Low}
}

// cut is a range of a file in milliseconds; toMs 0 is the end.
func cut(path string, fromMs, toMs int64) timeline.Segment {
	return timeline.Segment{
		SourceKey: path, Duration: time.Hour, TrimStart: timeline.Milliseconds(fromMs), TrimEnd: timeline.Milliseconds(toMs),
		Volume: 1, Speed: 1,
	}
}
