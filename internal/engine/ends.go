package engine

import (
	"math"

	"cutroom/internal/audio"
	"cutroom/internal/media"
	"cutroom/internal/timeline"
)

// filmEnd is a fade at one end of the film. The two never overlap.
type filmEnd struct {
	fade // its frames count from the film's begin
	// cut is the film's frame at which a part ends so that changing the fade encodes little. It does not depend on
	// the fade's length.
	cut int64
}

// filmEnds returns the fades at the film's ends.
func filmEnds(t timeline.Timeline, l *layout) []filmEnd {
	frames := func(f *timeline.FilmFade) int64 { return f.FramesOf(l.frames, l.rate.Num, l.rate.Den) }
	longest := frames(&timeline.FilmFade{Duration: timeline.MaxTransition})
	var ends []filmEnd
	if n := frames(t.FadeIn); n > 0 {
		ends = append(ends, filmEnd{fade{colour: string(t.FadeIn.Colour), from: 0, frames: n, steps: n, in: true}, longest})
	}
	if n := frames(t.FadeOut); n > 0 {
		ends = append(ends, filmEnd{fade{colour: string(t.FadeOut.Colour), from: l.frames - n, frames: n, steps: n}, l.frames - longest})
	}
	return ends
}

// endFades returns the fades at the film's ends that reach into the film's frames c.
func endFades(ends []filmEnd, c span) []fade {
	var fades []fade
	for _, e := range ends {
		if f := e.fade; f.from < c.to && f.from+f.frames > c.from {
			f.from -= c.from
			fades = append(fades, f)
		}
	}
	return fades
}

// shortestCut is the length, in seconds, of the shortest part that a cut at an end of the film may leave.
const shortestCut = 1

// cutAtEnds cuts the chunks of a segment that begins at the film's frame first.
func cutAtEnds(chunks []span, first int64, ends []filmEnd, rate media.Rational) []span {
	shortest := int64(math.Round(shortestCut * rate.Float()))
	var all []span
	for _, c := range chunks {
		for _, e := range ends {
			if at := e.cut - first; at-c.from >= shortest && c.to-at >= shortest {
				all = append(all, span{c.from, at})
				c.from = at
			}
		}
		all = append(all, c)
	}
	return all
}

// endGain is the gain of the mix at the film's ends.
func endGain(ends []filmEnd, rate media.Rational) audio.Curve {
	var c audio.Curve
	for _, e := range ends {
		from, to := audio.Knot{Gain: 0}, audio.Knot{Gain: 1}
		if !e.in {
			from.Gain, to.Gain = 1, 0
		}
		from.At, to.At = float64(samplesAt(e.from, rate)), float64(samplesAt(e.from+e.frames, rate))
		c = append(c, from, to)
	}
	return c
}
