package timeline_test

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"cutroom/internal/film/timeline"
)

func join(kind timeline.TransitionKind, ms int64) timeline.Segment {
	return timeline.Segment{Transition: &timeline.Transition{Kind: kind, Duration: timeline.Milliseconds(ms)}}
}

// In any film, every segment keeps its frames, begins where the one before ends, minus the overlap, and has room for
// the transitions at both ends.
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
