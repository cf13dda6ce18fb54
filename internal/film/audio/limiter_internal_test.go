package audio

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// through limits frames, and returns them without the delay.
func through(l *limiter, in []frame) (out []frame) {
	for _, f := range slices.Concat(in, make([]frame, lookAhead)) {
		out = append(out, l.push(f))
	}
	return out[lookAhead:]
}

func TestLimiterTamesPeaksAndLetsGo(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	in := make([]frame, 5*SampleRate)
	for i := range in {
		x := 0.9 * math.Sin(2*math.Pi*330*float64(i)/SampleRate)
		in[i] = frame{x, -x}
	}
	in[5000] = frame{1, -1} // full scale itself is not too loud
	for range 200 {         // bursts, spikes and spikes side by side
		at := SampleRate + rng.IntN(SampleRate)
		for j := range rng.IntN(300) {
			in[at+j][rng.IntN(2)] *= 1 + 12*rng.Float64()
		}
	}
	out := through(newLimiter(1, 0.977), in)
	if len(out) != len(in) {
		t.Fatalf("%d samples out of %d", len(out), len(in))
	}
	for i, f := range out {
		if max(math.Abs(f[0]), math.Abs(f[1])) > 1 {
			t.Fatalf("sample %d is %v", i, f)
		}
		if i < SampleRate-lookAhead && f != in[i] {
			t.Fatalf("sample %d changed although the first peak is far", i)
		}
		if i > 4*SampleRate && f != in[i] {
			t.Fatalf("sample %d is still reduced two seconds after the last peak: %v of %v", i, f, in[i])
		}
	}
}

// The gain itself must not jump, or limiting would click.
func TestLimiterMovesSmoothly(t *testing.T) {
	in := make([]frame, SampleRate)
	for i := range in {
		in[i] = frame{0.5, 0.5}
	}
	in[SampleRate/2] = frame{4, 4}
	out := through(newLimiter(1, 0.977), in)
	previous := 1.0
	for i, f := range out {
		if i == SampleRate/2 {
			continue
		}
		gain := f[0] / 0.5
		if math.Abs(gain-previous) > 1.0/lookAhead {
			t.Fatalf("the gain jumps from %.4f to %.4f at %d", previous, gain, i)
		}
		previous = gain
	}
}
