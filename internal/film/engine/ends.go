package engine

import (
	"math"

	"cutroom/internal/film/audio"
	"cutroom/internal/film/media"
	"cutroom/internal/film/timeline"
)

// filmEnds returns the fades at the film's ends, which never overlap.
func filmEnds(t timeline.Timeline, l *layout) []fade {
	var ends []fade
	if n := t.FadeIn.FramesOf(l.frames, l.rate.Num, l.rate.Den); n > 0 {
		ends = append(ends, fade{colour: string(t.FadeIn.Colour), from: 0, frames: n, steps: n, in: true})
	}
	if n := t.FadeOut.FramesOf(l.frames, l.rate.Num, l.rate.Den); n > 0 {
		ends = append(ends, fade{colour: string(t.FadeOut.Colour), from: l.frames - n, frames: n, steps: n})
	}
	return ends
}

// shortestCut is the length, in seconds, of the shortest part that a cut at an end of the film may leave.
const shortestCut = 1

// cutAtEnds cuts the chunks of a segment where the longest fades at the film's ends would stop. Changing the length of
// such a fade then re-encodes little.
func (l *layout) cutAtEnds(chunks []span, s *placed, ends []fade) []span {
	shortest := int64(math.Round(shortestCut * l.rate.Float()))
	longest := (&timeline.FilmFade{Duration: timeline.MaxTransition}).FramesOf(l.frames, l.rate.Num, l.rate.Den)
	var all []span
	for _, c := range chunks {
		for _, e := range ends {
			at := longest - s.frame
			if !e.in {
				at = l.frames - longest - s.frame
			}
			if at-c.from >= shortest && c.to-at >= shortest {
				all = append(all, span{c.from, at})
				c.from = at
			}
		}
		all = append(all, c)
	}
	return all
}

// endGain is the gain of the mix at the film's ends.
func endGain(ends []fade, rate media.Rational) audio.Curve {
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
