package engine

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"cutroom/internal/media"
	"cutroom/internal/mediatest"
	"cutroom/internal/timeline"
)

// A part is the same, byte for byte, with and without sharing the decoding of overlaps.
// Sources that a neighbour might show differently are not shared.
func TestSharedOverlapsChangeNothing(t *testing.T) {
	t.Parallel()
	runner, err := media.New(media.Config{})
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]Source{}
	clip := func(name string, args ...string) string {
		path := filepath.Join(t.TempDir(), name)
		mediatest.FFmpeg(t, append(append([]string{"-f", "lavfi", "-i", "testsrc2=size=160x96:rate=30000/1001:duration=4",
			"-c:v", "libx264", "-g", "300", "-pix_fmt", "yuv420p"}, args...), path)...)
		sources[path] = Source{Path: path, SHA256: name}
		return path
	}
	steady := clip("steady.mp4")
	uneven := clip("uneven.mkv", "-vf", "select='mod(n,5)-mod(n,3)'", "-fps_mode", "vfr")
	turned := mediatest.WithMatrix(t, steady, [4]int32{0, 1, -1, 0})
	sources[turned] = Source{Path: turned, SHA256: "turned"}
	interlaced := clip("interlaced.mp4", "-vf", "setfield=tff", "-flags", "+ildct+ilme")

	tl := timeline.Timeline{OutputKind: timeline.Video, Quality: timeline.Low, Canvas: &timeline.Canvas{Aspect: "1:1", Fit: timeline.Blur}}
	for i, s := range []struct {
		path  string
		speed float64
		kind  timeline.TransitionKind
	}{
		{steady, 1, ""}, {uneven, 1, timeline.Dissolve}, {turned, 0.3, timeline.Dissolve}, {steady, 2.7, timeline.FadeWhite},
		{uneven, 0.7, timeline.Dissolve}, {interlaced, 1, timeline.Dissolve},
	} {
		segment := timeline.Segment{SourceKey: s.path, Order: int64(i), Duration: time.Hour, Volume: 1, Speed: s.speed,
			TrimStart: timeline.Milliseconds(900), TrimEnd: timeline.Milliseconds(900 + int64(2000*min(1, s.speed)))}
		if s.kind != "" {
			segment.Transition = &timeline.Transition{Kind: s.kind, Duration: timeline.Milliseconds(300)}
		}
		tl.Segments = append(tl.Segments, segment)
	}
	r := New(Config{Media: runner, Cores: 2}).newRun(Job{Dir: t.TempDir(), Timeline: tl, Sources: sources})
	defer r.close()
	if err := r.open(context.Background()); err != nil {
		t.Fatal(err)
	}
	shared := map[bool]int{}
	for _, p := range inOrder(r.plan.Parts) {
		if _, err := r.encodePart(context.Background(), p, "alone.mp4", p.keyframes(0)); err != nil {
			t.Fatal(err)
		}
		dissolve := len(p.shots) == 2
		if !r.encodeSharing(context.Background(), p, "shared.mp4") {
			continue
		}
		shared[dissolve]++
		alone, err := os.ReadFile(r.path("alone.mp4"))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(r.path("shared.mp4")); err != nil || !bytes.Equal(alone, got) {
			t.Errorf("%s differs: %d and %d bytes, %v", p.Name, len(alone), len(got), err)
		}
	}
	if shared[false] != 5 || shared[true] != 4 {
		t.Errorf("%d parts and %d dissolves share, want 5 and 4", shared[false], shared[true])
	}
	if left := r.overlapBytes(); left != 0 {
		t.Errorf("%d bytes are left", left)
	}
}
