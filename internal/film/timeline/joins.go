// Transitions and fades of a film, and where they put its segments: Arrange counts them in frames, and its comment has
// a diagram.

package timeline

import (
	"slices"
	"time"
)

// TransitionKind is how a film moves from one segment to the next.
type TransitionKind string

// The transitions, spelled as on the wire. A cut is the absence of a transition.
const (
	Dissolve  TransitionKind = "dissolve"
	FadeBlack TransitionKind = "fadeBlack"
	FadeWhite TransitionKind = "fadeWhite"
	Wipe      TransitionKind = "wipe"  // the incoming picture replaces the outgoing one; neither moves
	Slide     TransitionKind = "slide" // the incoming picture moves over the outgoing one
	Push      TransitionKind = "push"  // both pictures move
)

// Moves reports whether the transition has a direction.
func (k TransitionKind) Moves() bool { return k == Wipe || k == Slide || k == Push }

// fades reports whether the transition leads through a colour. All others lay the two segments over each other.
func (k TransitionKind) fades() bool { return k == FadeBlack || k == FadeWhite }

// Direction is the direction in which the edge between the two pictures of a wipe, slide or push moves, spelled as on
// the wire.
type Direction string

// The directions.
const (
	Left  Direction = "left"
	Right Direction = "right"
	Up    Direction = "up"
	Down  Direction = "down"
)

// Limits and default of the duration of a transition, and of a fade at an end of the film.
const (
	minTransition     = 100 * time.Millisecond
	MaxTransition     = 5 * time.Second
	DefaultTransition = 500 * time.Millisecond
)

// Transition leads from the previous segment, in play order, to the segment that has it. On the first segment it is
// checked and ignored.
type Transition struct {
	Kind      TransitionKind `json:"type"`
	Duration  time.Duration  `json:"durationNs"`          // minTransition..MaxTransition
	Direction Direction      `json:"direction,omitempty"` // "" unless the kind moves
}

// Colour is what a film begins or ends in, spelled as on the wire.
type Colour string

// The colours.
const (
	Black Colour = "black"
	White Colour = "white"
)

// FilmFade leads from a colour into the film, or from the film into a colour, over whatever it covers. Its first or
// last frame is the pure colour.
type FilmFade struct {
	Colour   Colour        `json:"color"`
	Duration time.Duration `json:"durationNs"` // minTransition..MaxTransition
}

// DefaultFilmFade is what a fade without fields means.
var DefaultFilmFade = FilmFade{Colour: Black, Duration: DefaultTransition}

// FramesOf returns how many frames of a film fade: the duration in frames, halves rounded up, but at most half the
// film's frames, rounded down. It is 0 for nil.
func (f *FilmFade) FramesOf(film, rateNum, rateDen int64) int64 {
	if f == nil {
		return 0
	}
	return min(wholeFrames(f.Duration, rateNum, rateDen), film/2)
}

// Join is a transition on the film's frame grid.
type Join struct {
	Kind      TransitionKind
	Direction Direction
	Frames    int64 // 0 is a cut
}

// Overlap returns how many frames the two segments share.
func (j Join) Overlap() int64 {
	if j.Kind.fades() {
		return 0
	}
	return j.Frames
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

// Arrange places segments, given in play order with the frames that each plays, on a film of rateNum/rateDen frames a
// second:
//
//	            cut          dissolve, N frames          fade, N frames
//	A ├──────────┤
//	B            ├─────────────╲╲╲╲┤
//	C                         ├╱╱╱╱──────────────░░░┤
//	D                                               ├░░░────────────┤
//	  0          ↑            ↑                     ↑               ↑
//	  film       B begins     C begins              D begins        end
//
// A cut and a fade shorten nothing. The other transitions lay the last N frames of one segment over the first N of the
// next: everything after it begins N frames earlier. The smaller half of a fade's N frames ends one segment, the larger
// half begins the next.
//
// N is the transition's duration in frames, halves rounded up, but at most half the frames of the shorter neighbour,
// rounded down. So the transitions at the two ends of a segment never meet.
//
// All times that a client gives on the output timeline (a clip's startMs, the range of a directive) refer to this film.
// Times of a segment, such as its volume points, count from its Begin. A range that lies in one segment, or in segments
// that continue one source, moves with it when rounding to whole frames moves the segment; if it lies in two that
// overlap, it moves with the second. A range over several segments, and a clip, stay at the client's times.
func Arrange(segments []Segment, frames []int64, rateNum, rateDen int64) (places []Place, length int64) {
	places = make([]Place, len(segments))
	for k, s := range segments {
		p := &places[k]
		if k > 0 && s.Transition != nil {
			n := wholeFrames(s.Transition.Duration, rateNum, rateDen)
			p.In = Join{s.Transition.Kind, s.Transition.Direction, min(n, frames[k-1]/2, frames[k]/2)}
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

// CountsFrames reports whether the sound depends on the film's frame grid: segments are joined by more than cuts, the
// film fades at an end, or a segment plays backwards, from its last frame, or at a changing speed.
func (t Timeline) CountsFrames() bool {
	segments, _ := t.InOrder()
	return t.FadeIn != nil || t.FadeOut != nil ||
		slices.ContainsFunc(segments, func(s Segment) bool { return s.Reverse || len(s.SpeedPoints) > 0 }) ||
		slices.ContainsFunc(segments[min(1, len(segments)):], func(s Segment) bool { return s.Transition != nil })
}
