package timeline

import "time"

// TransitionKind is how a film moves from one segment to the next.
type TransitionKind string

// The transitions, spelled as on the wire. A cut is the absence of a transition.
const (
	Dissolve  TransitionKind = "dissolve"
	FadeBlack TransitionKind = "fadeBlack"
	FadeWhite TransitionKind = "fadeWhite"
)

// Limits and default of a transition's duration.
const (
	minTransition     = 100 * time.Millisecond
	maxTransition     = 5 * time.Second
	DefaultTransition = 500 * time.Millisecond
)

// Transition leads from the previous segment, in play order, to the segment that has the transition. On the
// first segment it is checked and ignored.
type Transition struct {
	Kind     TransitionKind `json:"type"`
	Duration time.Duration  `json:"durationNs"` // minTransition..maxTransition
}

// Join is a transition on the film's frame grid.
type Join struct {
	Kind   TransitionKind
	Frames int64 // 0 is a cut
}

// Overlap returns how many frames the two segments share.
func (j Join) Overlap() int64 {
	if j.Kind == Dissolve {
		return j.Frames
	}
	return 0
}

// FadeOut returns how many frames of the previous segment fade to the colour.
func (j Join) FadeOut() int64 { return (j.Frames - j.Overlap()) / 2 }

// FadeIn returns how many frames of the segment itself fade from the colour.
func (j Join) FadeIn() int64 { return j.Frames - j.Overlap() - j.FadeOut() }

// Place is the position of a segment on the film, in frames, half-open, with the transitions at its two ends.
type Place struct {
	Begin, End int64
	In, Out    Join
}

// Arrange places segments, given in play order with the frames that each plays,
// on a film of rateNum/rateDen frames a second:
//
//	            cut          dissolve, N frames          fade, N frames
//	A ├──────────┤
//	B            ├─────────────╲╲╲╲┤
//	C                         ├╱╱╱╱──────────────░░░┤
//	D                                               ├░░░────────────┤
//	  0          ↑            ↑                     ↑               ↑
//	  film       B begins     C begins              D begins        end
//
// A cut and a fade shorten nothing. A dissolve lays the last N frames of one
// segment over the first N frames of the next: the film is N frames shorter,
// and everything after it begins N frames earlier. The smaller half of a fade's N
// frames ends one segment, the larger half begins the next.
//
// N is the transition's duration in frames, halves rounded up, but at most half
// the frames of the shorter neighbour, rounded down. So the transitions at the two
// ends of a segment never meet, and no transition changes the frames that a segment
// plays.
//
// All times that a client gives on the output timeline (a clip's startMs, the
// range of a directive) count on this film, as delivered. Times of a segment, such as
// its volume points, count from its Begin. A range that starts
// before C begins follows B to its end and C from there; a range that starts
// where C begins, or later, follows C.
func Arrange(segments []Segment, frames []int64, rateNum, rateDen int64) (places []Place, length int64) {
	places = make([]Place, len(segments))
	for k, s := range segments {
		p := &places[k]
		if k > 0 && s.Transition != nil {
			p.In = Join{s.Transition.Kind, min(wholeFrames(s.Transition.Duration, rateNum, rateDen), min(frames[k-1], frames[k])/2)}
			places[k-1].Out = p.In
		}
		p.Begin = length - p.In.Overlap()
		p.End = p.Begin + frames[k]
		length = p.End
	}
	return places, length
}

// wholeFrames converts d to frames, rounded to the nearest, halves up.
func wholeFrames(d time.Duration, rateNum, rateDen int64) int64 {
	second := int64(time.Second) * rateDen
	return (2*int64(d)*rateNum + second) / (2 * second)
}

// HasTransitions reports whether any two segments are joined by more than a cut.
func (t Timeline) HasTransitions() bool {
	segments, _ := t.InOrder()
	for _, s := range segments[min(1, len(segments)):] {
		if s.Transition != nil {
			return true
		}
	}
	return false
}
