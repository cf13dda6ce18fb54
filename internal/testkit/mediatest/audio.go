// Measures sound: level, tones, breaks in a sine, silence.

package mediatest

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	"cutroom/internal/sandbox/measure"
)

// SampleRate is the rate of all decoded audio.
const SampleRate = measure.SampleRate

// Window is the half-open span [From, To) of a file's timeline. The zero value is the whole file.
type Window struct{ From, To time.Duration }

// Between is the window from..to in milliseconds.
func Between(fromMs, toMs int) Window {
	return Window{time.Duration(fromMs) * time.Millisecond, time.Duration(toMs) * time.Millisecond}
}

func (w Window) cut(samples []float64) []float64 {
	from := min(sampleAt(w.From), len(samples))
	to := len(samples)
	if w.To > 0 {
		to = max(from, min(sampleAt(w.To), len(samples)))
	}
	return samples[from:to]
}

func sampleAt(d time.Duration) int { return int(math.Round(d.Seconds() * SampleRate)) }

// Samples decodes the first audio stream at SampleRate, and returns one slice per channel with samples in -1..1. The
// first sample is at time zero; zeros precede audio that starts later. The caller must not change the slices.
func Samples(t testing.TB, path string) [][]float64 {
	t.Helper()
	return once(t, "samples", path, func() [][]float64 {
		samples, err := measure.Sound(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		return samples
	})
}

// Mono decodes like Samples and returns the mean of all channels.
func Mono(t testing.TB, path string) []float64 {
	t.Helper()
	all := Samples(t, path)
	sum := slices.Clone(all[0])
	for _, c := range all[1:] {
		for i, v := range c {
			sum[i] += v
		}
	}
	for i := range sum {
		sum[i] /= float64(len(all))
	}
	return sum
}

// RMS returns the root mean square of the window in dBFS, or -Inf for silence. A full-scale sine has -3.01.
func RMS(t testing.TB, path string, w Window) float64 {
	t.Helper()
	samples := w.cut(Mono(t, path))
	if len(samples) == 0 {
		t.Fatal("the window has no samples")
	}
	var sum float64
	for _, v := range samples {
		sum += v * v
	}
	return 10 * math.Log10(sum/float64(len(samples)))
}

// Peak returns the largest absolute sample of any channel in the window. Full scale is 1.
func Peak(t testing.TB, path string, w Window) float64 {
	t.Helper()
	var peak float64
	for _, c := range Samples(t, path) {
		for _, v := range w.cut(c) {
			peak = max(peak, math.Abs(v))
		}
	}
	return peak
}

// ToneLevel returns the level of one frequency in the window, as the peak of its sine in dBFS: the tone of a Clip with
// Amplitude 0.25 has -12.04. Tones less than about 4/window apart interfere.
func ToneLevel(t testing.TB, path string, hz float64, w Window) float64 {
	t.Helper()
	return 20 * math.Log10(ToneAmplitude(w.cut(Mono(t, path)), hz))
}

// ToneAmplitude returns the peak amplitude of a frequency in samples, by Goertzel's algorithm with a Hann window.
func ToneAmplitude(samples []float64, hz float64) float64 {
	n := len(samples)
	if n == 0 {
		return 0
	}
	omega := 2 * math.Pi * hz / SampleRate
	coefficient := 2 * math.Cos(omega)
	var s1, s2, gain float64
	for i, v := range samples {
		weight := 0.5 - 0.5*math.Cos(2*math.Pi*(float64(i)+0.5)/float64(n))
		gain += weight
		s1, s2 = v*weight+coefficient*s1-s2, s1
	}
	power := s1*s1 + s2*s2 - coefficient*s1*s2
	return 2 * math.Sqrt(max(power, 0)) / gain
}

// DominantTone returns the candidate, in Hz, with the most energy.
func DominantTone(t testing.TB, path string, w Window, candidates ...float64) float64 {
	t.Helper()
	samples := w.cut(Mono(t, path))
	return slices.MaxFunc(candidates, func(a, b float64) int {
		return cmp.Compare(ToneAmplitude(samples, a), ToneAmplitude(samples, b))
	})
}

// Discontinuity returns how far the window deviates from an unbroken sine of hz, and where. A sine obeys x[n] =
// 2cos(w)x[n-1] - x[n-2]; residual is the largest deviation of a sample, relative to the sine's peak. An unbroken sine
// through AAC stays below 0.002; a jump, a gap or a repeated sample exceeds 0.01.
func Discontinuity(t testing.TB, path string, hz float64, w Window) (residual float64, at time.Duration) {
	t.Helper()
	samples := w.cut(Mono(t, path))
	amplitude := ToneAmplitude(samples, hz)
	if amplitude < 1e-3 {
		t.Fatalf("%s holds no tone of %v Hz", path, hz)
	}
	coefficient := 2 * math.Cos(2*math.Pi*hz/SampleRate)
	for i := 2; i < len(samples); i++ {
		r := math.Abs(samples[i]-coefficient*samples[i-1]+samples[i-2]) / amplitude
		if r > residual {
			residual, at = r, w.From+time.Duration(float64(i)/SampleRate*float64(time.Second))
		}
	}
	return residual, at
}

// Silent returns the longest time in the window for which the magnitude stays below level. Full scale is 1.
func Silent(t testing.TB, path string, level float64, w Window) time.Duration {
	t.Helper()
	run, longest := 0, 0
	for _, v := range w.cut(Mono(t, path)) {
		run++
		if math.Abs(v) >= level {
			run = 0
		}
		longest = max(longest, run)
	}
	return time.Duration(float64(longest) / SampleRate * float64(time.Second))
}
