package timeline_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"cutroom/internal/timeline"
)

func join(kind timeline.TransitionKind, ms int64) timeline.Segment {
	return timeline.Segment{Transition: &timeline.Transition{Kind: kind, Duration: timeline.Milliseconds(ms)}}
}

func TestFramesOfATransition(t *testing.T) {
	for _, tt := range []struct {
		ms, before, after int64
		num, den          int64
		want              int64
	}{
		{500, 300, 300, 30, 1, 15},
		{500, 300, 300, 25, 1, 13}, // 12.5: halves go up
		{500, 300, 300, 30000, 1001, 15},
		{501, 300, 300, 24000, 1001, 12},
		{5000, 9000, 9000, 60, 1, 300},
		{100, 300, 300, 5, 1, 1}, // 0.5
		{100, 300, 300, 4, 1, 0}, // below one frame: a cut
		{149, 300, 300, 10, 1, 1},
		{150, 300, 300, 10, 1, 2},
		{1000, 31, 300, 30, 1, 15}, // half of the shorter one, rounded down
		{1000, 300, 21, 30, 1, 10},
		{1000, 1, 300, 30, 1, 0},
		{1000, 300, 0, 30, 1, 0},
		{5000, 1 << 40, 1 << 40, 60_000_000, 1_000_000, 300},
	} {
		for _, kind := range []timeline.TransitionKind{timeline.Dissolve, timeline.FadeBlack, timeline.FadeWhite} {
			places, length := timeline.Arrange([]timeline.Segment{{}, join(kind, tt.ms)}, []int64{tt.before, tt.after}, tt.num, tt.den)
			in := places[1].In
			if in.Frames != tt.want || places[0].Out != in {
				t.Errorf("%+v: %d frames of %s, out %+v", tt, in.Frames, kind, places[0].Out)
			}
			overlap, out, rise := tt.want, int64(0), int64(0)
			if kind != timeline.Dissolve {
				overlap, out, rise = 0, tt.want/2, tt.want-tt.want/2
			}
			if in.Overlap() != overlap || in.FadeOut() != out || in.FadeIn() != rise || length != tt.before+tt.after-overlap {
				t.Errorf("%+v, %s: overlap %d, out %d, in %d, length %d", tt, kind, in.Overlap(), in.FadeOut(), in.FadeIn(), length)
			}
		}
	}
}

// Whatever the film: every segment keeps its frames, begins where the one before
// ends but for the overlap, and has room for the transitions at both ends.
func TestArrangeProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		num := rapid.SampledFrom([]int64{1, 12, 25, 30, 60, 24000, 30000, 1000}).Draw(rt, "rate")
		den := int64(1)
		if num >= 24000 {
			den = 1001
		}
		n := rapid.IntRange(1, 200).Draw(rt, "segments")
		segments, frames := make([]timeline.Segment, n), make([]int64, n)
		for k := range segments {
			frames[k] = rapid.Int64Range(0, 600).Draw(rt, "frames")
			if rapid.Bool().Draw(rt, "joined") {
				kind := rapid.SampledFrom([]timeline.TransitionKind{timeline.Dissolve, timeline.FadeBlack, timeline.FadeWhite}).Draw(rt, "kind")
				segments[k] = join(kind, rapid.Int64Range(100, 5000).Draw(rt, "ms"))
			}
		}
		places, length := timeline.Arrange(segments, frames, num, den)
		var end int64
		for k, p := range places {
			if p.Begin != end-p.In.Overlap() || p.End-p.Begin != frames[k] {
				rt.Fatalf("segment %d of %d frames lies at %+v, the one before ends at %d", k, frames[k], p, end)
			}
			end = p.End
			if p.In.Frames+p.Out.Frames > frames[k] {
				rt.Fatalf("segment %d: %+v and %+v meet in %d frames", k, p.In, p.Out, frames[k])
			}
			want := int64(0)
			if tr := segments[k].Transition; tr != nil && k > 0 {
				exact := new(big.Rat).Mul(big.NewRat(tr.Duration.Milliseconds(), 1000), big.NewRat(num, den))
				f, _ := exact.Float64()
				want = min(int64(math.Floor(f+0.5+1e-12)), frames[k]/2, frames[k-1]/2)
			}
			if p.In.Frames != want {
				rt.Fatalf("segment %d: %d frames, want %d", k, p.In.Frames, want)
			}
		}
		if length != end {
			rt.Fatalf("the film has %d frames, its last segment ends at %d", length, end)
		}
	})
}

func TestCountsFrames(t *testing.T) {
	first, second := join(timeline.Dissolve, 500), timeline.Segment{Order: 1}
	if (timeline.Timeline{Segments: []timeline.Segment{second, first}}).CountsFrames() {
		t.Error("that of the segment that plays first counts")
	}
	first.Order = 2
	if !(timeline.Timeline{Segments: []timeline.Segment{first, second}}).CountsFrames() {
		t.Error("that of the segment that plays second does not count")
	}
}

func TestFitsAndFocusHaveDefaults(t *testing.T) {
	covered := timeline.Segment{Fit: timeline.Cover, Focus: &timeline.Focus{X: 0, Y: 1}}
	for _, tt := range []struct {
		canvas *timeline.Canvas
		of     timeline.Segment
		want   timeline.Fit
	}{
		{nil, timeline.Segment{}, timeline.Contain},
		{nil, covered, timeline.Cover},
		{&timeline.Canvas{Fit: timeline.Blur}, timeline.Segment{}, timeline.Blur},
		{&timeline.Canvas{Fit: timeline.Blur}, covered, timeline.Cover},
	} {
		if got := (timeline.Timeline{Canvas: tt.canvas}).FitOf(tt.of); got != tt.want {
			t.Errorf("%+v on %+v: %s, want %s", tt.of, tt.canvas, got, tt.want)
		}
	}
	if got := (timeline.Segment{}).FocusOf(); got != (timeline.Focus{X: 0.5, Y: 0.5}) || covered.FocusOf() != *covered.Focus {
		t.Errorf("focus %+v and %+v", got, covered.FocusOf())
	}
}

// What a stored row says of joins and canvas is pinned as TestStoredFormIsStable
// pins the rest.
func TestStoredFormOfThePicture(t *testing.T) {
	side := int64(1080)
	tl := full()
	tl.Clips, tl.Directives, tl.Segments = nil, nil, tl.Segments[:1]
	tl.Segments[0].Transition = &timeline.Transition{Kind: timeline.FadeWhite, Duration: time.Second}
	tl.Segments[0].Fit, tl.Segments[0].Focus = timeline.Blur, &timeline.Focus{X: 0.25, Y: 1}
	tl.Canvas = &timeline.Canvas{Aspect: "9:16", MaxSide: &side, Fit: timeline.Cover}
	checkStored(t, tl, `{"v":1,"kind":"video","quality":"high","segments":[`+
		`{"source":"a","order":2,"durationNs":5000000000,"trimStartNs":1000000000,"trimEndNs":3000000000,"volume":1,"speed":1,`+
		`"transition":{"type":"fadeWhite","durationNs":1000000000},"fit":"blur","focus":{"x":0.25,"y":1}}],`+
		`"canvas":{"aspect":"9:16","maxSide":1080,"fit":"cover"}}`)
}
