package audio

import (
	"math"
	"sort"
)

// Envelope is the gain of a region, sample by sample: the product of its volume, its fades, its mutes and its
// curves. Every change of level in a mix is one of these four.
type Envelope struct {
	Volume float64
	// FadeIn and FadeOut lie inside the region, at its ends.
	FadeIn, FadeOut Fade
	// Mutes are the spans of the output in which the region is silent, in order and without overlaps.
	Mutes  []Mute
	Curves []Curve
}

// Fade is a rise from silence, or a fall to silence, over Length samples.
type Fade struct {
	Length int64
	Shape  Shape // Linear or Power
}

// Shape is the interpolation between two gains.
type Shape int

// The shapes.
const (
	Linear   Shape = iota // in amplitude
	Power                 // a quarter of a sine: a cross-fade of two sounds has constant power
	Decibels              // linear in dB; both gains must be above zero
)

// Mute is a half-open range of output samples with ramps inside it: the muted region falls from full to silent over
// FadeIn samples after Start, and rises again over the FadeOut samples before End. It complements a region with the
// same span and fades: the two gains add up to one.
type Mute struct{ Start, End, FadeIn, FadeOut int64 }

// Curve is a gain interpolated between knots in ascending order. It is constant before the first knot and after the
// last one.
type Curve []Knot

// Knot is a point of a curve. At is an instant of the output in samples. Sample n lasts from n to n+1 and has the gain
// at its middle. Two knots at the same instant are a step.
type Knot struct {
	At, Gain float64
	Shape    Shape // Linear or Decibels, up to the next knot
}

// gains fills dst with the gains of the output samples from position from. The region plays [start, end).
func (e *Envelope) gains(dst []float64, from, start, end int64) {
	to := from + int64(len(dst))
	for i := range dst {
		dst[i] = 1
	}
	for n := from; n < min(to, start+e.FadeIn.Length); n++ {
		dst[n-from] = e.FadeIn.at(n - start)
	}
	for n := max(from, end-e.FadeOut.Length); n < to; n++ {
		dst[n-from] *= e.FadeOut.at(end - 1 - n)
	}
	for _, s := range e.Mutes {
		for n := max(from, s.Start); n < min(to, s.End); n++ {
			dst[n-from] *= 1 - ramp(n-s.Start, s.FadeIn)*ramp(s.End-1-n, s.FadeOut)
		}
	}
	for _, c := range e.Curves {
		c.multiply(dst, from)
	}
	for i := range dst {
		dst[i] *= e.Volume
	}
}

// at returns the gain of the n-th sample, counted from the silent end.
func (f Fade) at(n int64) float64 {
	share := ramp(n, f.Length)
	if f.Shape == Power {
		return math.Sin(math.Pi / 2 * share)
	}
	return share
}

// ramp rises from 0 to 1 over length samples; n counts from its start.
func ramp(n, length int64) float64 {
	if n >= length {
		return 1
	}
	return (float64(n) + 0.5) / float64(length)
}

// multiply multiplies dst by the gains of the samples from position from.
func (c Curve) multiply(dst []float64, from int64) {
	if len(c) == 0 {
		return
	}
	for len(dst) > 0 {
		first := float64(from) + 0.5
		k, n := sort.Search(len(c), func(i int) bool { return c[i].At > first }), len(dst)
		if k < len(c) {
			n = min(n, max(1, int(math.Ceil(c[k].At-first))))
		}
		c.between(k, dst[:n], first)
		from, dst = from+int64(n), dst[n:]
	}
}

// between multiplies dst by the gains between knots k-1 and k. first is the instant of the middle of dst's first
// sample.
func (c Curve) between(k int, dst []float64, first float64) {
	a, b := c[max(0, k-1)], c[min(k, len(c)-1)]
	if a.Gain == b.Gain || k == 0 || k == len(c) {
		level := a.Gain
		for i := range dst {
			dst[i] *= level
		}
		return
	}
	length, ratio := b.At-a.At, math.Log(b.Gain/a.Gain)
	for i := range dst {
		share := (first + float64(i) - a.At) / length
		if a.Shape == Decibels {
			dst[i] *= a.Gain * math.Exp(ratio*share)
		} else {
			dst[i] *= a.Gain + (b.Gain-a.Gain)*share
		}
	}
}
