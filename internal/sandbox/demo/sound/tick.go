package sound

import (
	"math"
	"time"
)

// A tick is a chirp: its pitch rises so fast that it is found to a fraction of
// a millisecond even under music and speech, whose energy lies lower.
const (
	tickLow     = 6500.0 // Hz
	tickHigh    = 11500.0
	tickSeconds = 0.024
)

// TickLevel is the peak of a tick in the clips: heard, but not in the way.
const TickLevel = 0.075

// Tick is one tick with a peak of 1. It starts with its first sample.
func Tick() []float64 {
	n := int(tickSeconds * Rate)
	out := make([]float64, n)
	for i := range out {
		t := float64(i) / Rate
		phase := 2 * math.Pi * (tickLow*t + (tickHigh-tickLow)*t*t/(2*tickSeconds))
		edge := 0.5 - 0.5*math.Cos(2*math.Pi*(float64(i)+0.5)/float64(n))
		out[i] = math.Sin(phase) * math.Sqrt(edge)
	}
	return out
}

// AddTicks puts a tick at every whole second of w, from zero on.
func (w *Wave) AddTicks() {
	tick := Tick()
	for at := time.Duration(0); Samples(at) < w.Len(); at += time.Second {
		w.AddMono(tick, Samples(at), TickLevel, 0)
	}
}
