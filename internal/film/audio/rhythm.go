// Finds the onsets that an editor would cut to, by spectral flux in bands. The onsets for time stretching, which are
// exact to a millisecond, are found in onset.go.

package audio

import (
	"cmp"
	"math"
	"math/cmplx"
	"slices"
)

// RhythmDetector is an io.Writer of interleaved float32 samples at SampleRate that finds the onsets that a person would
// cut to: drums, notes and words. It compares the spectral flux, which is how much louder the bands of the spectrum
// have become over two steps, with a threshold that follows the sound. Its memory is constant.
type RhythmDetector struct {
	portions portions
	channels int

	samples []float64 // mono, starting at a step boundary
	bands   [fluxLag + 1][]float64
	flux    [fluxKept]float64 // ring, by step
	power   [fluxKept]float64 // likewise
	steps   int64             // computed so far
	level   float64           // decaying maximum of the recent flux
	last    int64             // step of the last onset
	found   []rhythmOnset
}

type rhythmOnset struct {
	step     int64
	strength float64
}

const (
	// MaxOnsets is the maximum number of onsets; if there are more, the strongest are kept.
	MaxOnsets = 2000

	fluxStep   = SampleRate / 100 // samples
	fluxWindow = 2048             // samples of one spectrum
	fluxLag    = 2                // steps between the spectra that are compared

	bandsPerOctave        = 12
	lowestBand, highBands = 40.0, 16000.0 // Hz

	// A step is an onset if its flux is the highest within fluxAround steps on both sides, and exceeds the mean of the
	// steps nearby by fluxAbove, by fluxRise of that mean and by fluxShare of the recent level.
	fluxAround  = 4
	meanBefore  = 10
	meanAfter   = 6
	fluxKept    = 32
	fluxAbove   = 1.2
	fluxRise    = 0.9
	fluxShare   = 0.12
	levelDecay  = 0.999 // per step: halves the level in 7 s
	onsetsApart = 5     // steps

	// A sound that is cut off clicks, and a click is not an onset. At a cut, the power fluxEnd steps later is below
	// cutOff times the power fluxEnd steps earlier.
	fluxEnd = 3
	cutOff  = 1.0 / 32
)

// NewRhythmDetector returns a detector for sound with this many channels.
func NewRhythmDetector(channels int) *RhythmDetector {
	d := &RhythmDetector{portions: portions{size: 4 * channels}, channels: channels, last: -onsetsApart}
	d.samples = make([]float64, fluxWindow/2) // so that the first spectrum is centred at time 0
	for i := range d.bands {
		d.bands[i] = make([]float64, len(fluxBands))
	}
	return d
}

// Write accepts samples in portions of any length.
func (d *RhythmDetector) Write(p []byte) (int, error) { return d.portions.each(p, d.frames) }

func (d *RhythmDetector) frames(p []byte) {
	for ; len(p) > 0; p = p[d.portions.size:] {
		var sum float64
		for c := range d.channels {
			sum += float(p[4*c:])
		}
		d.samples = append(d.samples, sum/float64(d.channels))
		if len(d.samples) == fluxWindow+fluxStep {
			d.twoSteps()
			d.samples = d.samples[:copy(d.samples, d.samples[2*fluxStep:])]
		}
	}
}

// Onsets ends the sound and returns its onsets in samples, ascending, at most MaxOnsets. Do not call Write
// afterwards.
func (d *RhythmDetector) Onsets() []int64 {
	silence := make([]byte, d.portions.size*(fluxWindow+(fluxKept+2)*fluxStep))
	end := d.steps*fluxStep + int64(len(d.samples)) - fluxWindow/2
	d.frames(silence)
	d.keepStrongest()
	slices.SortFunc(d.found, func(a, b rhythmOnset) int { return cmp.Compare(a.step, b.step) })
	var at []int64
	for _, o := range d.found {
		if o.step*fluxStep < end {
			at = append(at, o.step*fluxStep)
		}
	}
	return at
}

// keepStrongest reduces the onsets to the MaxOnsets strongest.
func (d *RhythmDetector) keepStrongest() {
	slices.SortFunc(d.found, func(a, b rhythmOnset) int {
		return cmp.Or(cmp.Compare(b.strength, a.strength), cmp.Compare(a.step, b.step))
	})
	d.found = d.found[:min(MaxOnsets, len(d.found))]
}

// twoSteps computes two spectra at the cost of one: one transform with the first step as its real part and the
// second as its imaginary part.
func (d *RhythmDetector) twoSteps() {
	var x [fluxWindow]complex128
	for i := range x {
		w := hann[i]
		x[i] = complex(w*d.samples[i], w*d.samples[i+fluxStep])
	}
	fft(&x)
	var first, second [fluxWindow/2 + 1]float64
	for k := range first {
		a, b := x[k], cmplx.Conj(x[(fluxWindow-k)%fluxWindow])
		first[k], second[k] = squared(a+b), squared(a-b)
	}
	d.step(&first)
	d.step(&second)
}

func squared(c complex128) float64 { return real(c)*real(c) + imag(c)*imag(c) }

// step adds a power spectrum, and judges the step whose neighbours are now complete.
func (d *RhythmDetector) step(spectrum *[fluxWindow/2 + 1]float64) {
	now := d.bands[d.steps%(fluxLag+1)]
	var power float64
	for i, b := range fluxBands {
		var sum float64
		for _, p := range spectrum[b.from:b.to] {
			sum += p
		}
		power += sum
		now[i] = math.Log10(1 + 1000*math.Sqrt(sum)*2/fluxWindow)
	}
	before := d.bands[(d.steps+1)%(fluxLag+1)]
	var flux float64
	for i, x := range now {
		// A tone that merely moves to the next band has not become louder.
		flux += max(0, x-max(before[i], before[max(0, i-1)], before[min(i+1, len(before)-1)]))
	}
	d.flux[d.steps%fluxKept], d.power[d.steps%fluxKept] = flux, power
	d.level = max(flux, d.level*levelDecay)
	d.steps++
	d.judge(d.steps - 1 - max(fluxAround, meanAfter))
}

func (d *RhythmDetector) at(step int64) float64 {
	if step < 0 {
		return 0
	}
	return d.flux[step%fluxKept]
}

func (d *RhythmDetector) judge(step int64) {
	if step < d.last+onsetsApart {
		return
	}
	flux := d.at(step)
	for i := int64(1); i <= fluxAround; i++ {
		if d.at(step-i) > flux || d.at(step+i) >= flux {
			return
		}
	}
	var mean float64
	for i := step - meanBefore; i <= step+meanAfter; i++ {
		mean += d.at(i) / (meanBefore + meanAfter + 1)
	}
	strength := flux - mean
	if strength < max(fluxAbove, fluxShare*d.level, fluxRise*mean) || d.cutsOff(step) {
		return
	}
	d.last = step
	d.found = append(d.found, rhythmOnset{step, strength})
	if len(d.found) == 2*MaxOnsets {
		d.keepStrongest()
	}
}

// cutsOff reports whether a sound ends at the step without a new one beginning.
func (d *RhythmDetector) cutsOff(step int64) bool {
	return step >= fluxEnd && d.power[(step+fluxEnd)%fluxKept] < cutOff*d.power[(step-fluxEnd)%fluxKept]
}

// band is a half-open range of a spectrum.
type band struct{ from, to int }

// fluxBands are as wide as the ear's critical bands, but at least one line of the spectrum.
var fluxBands = func() (bands []band) {
	from := 1
	for hz := lowestBand; hz < highBands; hz *= math.Pow(2, 1.0/bandsPerOctave) {
		if to := int(math.Round(hz * fluxWindow / SampleRate)); to > from {
			bands = append(bands, band{from, to})
			from = to
		}
	}
	return bands
}()

var hann = func() (w [fluxWindow]float64) {
	for i := range w {
		w[i] = 0.5 - 0.5*math.Cos(2*math.Pi*float64(i)/fluxWindow)
	}
	return w
}()

var twiddles = func() (w [fluxWindow / 2]complex128) {
	for i := range w {
		w[i] = cmplx.Rect(1, -2*math.Pi*float64(i)/fluxWindow)
	}
	return w
}()

// fft computes the fast Fourier transform in place.
func fft(x *[fluxWindow]complex128) {
	for i, j := 1, 0; i < fluxWindow; i++ {
		bit := fluxWindow >> 1
		for ; j&bit != 0; bit >>= 1 {
			j ^= bit
		}
		if j ^= bit; i < j {
			x[i], x[j] = x[j], x[i]
		}
	}
	for size := 2; size <= fluxWindow; size *= 2 {
		half, stride := size/2, fluxWindow/size
		for begin := 0; begin < fluxWindow; begin += size {
			for k := range half {
				a, b := x[begin+k], x[begin+k+half]*twiddles[k*stride]
				x[begin+k], x[begin+k+half] = a+b, a-b
			}
		}
	}
}
