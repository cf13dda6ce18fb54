// Measures loudness and true peak by ITU-R BS.1770-4 while sound streams in: K-weighting, gating blocks in a histogram,
// and oversampling by a windowed sinc.

package audio

import "math"

// LoudnessMeter is an io.Writer of interleaved float32 samples at SampleRate that measures loudness by ITU-R
// BS.1770-4. Its memory is constant.
type LoudnessMeter struct {
	portions portions
	channels []loudnessChannel
	hop      int // samples of the current hop so far
	hops     [gatingHops]float64
	begun    int // completed hops
	blocks   [gatingBins]gatingBin
}

const (
	// loudnessHop is the distance between the starts of two gating blocks, in samples.
	loudnessHop = SampleRate / 10
	// gatingHops is the length of a gating block in hops: 400 ms.
	gatingHops = 4
	// silentLUFS is the absolute gate. relativeGate is the second gate, in LU below the mean of the blocks that
	// pass the first.
	silentLUFS   = -70
	relativeGate = -10
	// Gating blocks are counted in bins of a hundredth of a LU.
	binsPerLU  = 100
	gatingBins = 100 * binsPerLU
)

// gatingBin counts the gating blocks that have about the same loudness.
type gatingBin struct {
	blocks int64
	power  float64 // sum over the blocks
}

// loudnessChannel is the state of one channel.
type loudnessChannel struct {
	weight float64
	// samples is a hop, preceded by the last peakTaps samples of the previous hop.
	samples [peakTaps + loudnessHop]float64
	filter  kWeighting
	peak    float64 // true peak of the previous hops
}

// channelWeights are those of mono, stereo, 5.1 and 7.1: surround channels count 1.5 dB more, and the LFE does not
// count.
var channelWeights = [8]float64{1, 1, 1, 0, 1.41, 1.41, 1.41, 1.41}

// NewLoudnessMeter returns a meter for 1, 2, 6 or 8 channels.
func NewLoudnessMeter(channels int) *LoudnessMeter {
	m := &LoudnessMeter{portions: portions{size: 4 * channels}, channels: make([]loudnessChannel, channels)}
	for i := range m.channels {
		m.channels[i].weight = channelWeights[i]
	}
	return m
}

// Write accepts samples in portions of any length.
func (m *LoudnessMeter) Write(p []byte) (int, error) { return m.portions.each(p, m.frames) }

func (m *LoudnessMeter) frames(p []byte) {
	size := m.portions.size
	for len(p) > 0 {
		n := min(loudnessHop-m.hop, len(p)/size)
		for c := range m.channels {
			samples := m.channels[c].samples[peakTaps+m.hop:][:n]
			for i := range samples {
				samples[i] = float(p[i*size+4*c:])
			}
		}
		p = p[n*size:]
		if m.hop += n; m.hop == loudnessHop {
			m.endHop()
		}
	}
}

// endHop measures the samples of a hop, and the gating block that ends with it.
func (m *LoudnessMeter) endHop() {
	var power float64
	for i := range m.channels {
		c := &m.channels[i]
		c.peak = m.peak(c)
		power += c.weight * c.filter.power(c.samples[peakTaps:])
		copy(c.samples[:peakTaps], c.samples[loudnessHop:])
	}
	m.hop = 0
	m.hops[m.begun%gatingHops] = power
	if m.begun++; m.begun < gatingHops {
		return
	}
	var block float64
	for _, p := range m.hops {
		block += p / (gatingHops * loudnessHop)
	}
	if l := lufs(block); l > silentLUFS {
		bin := &m.blocks[min(gatingBins-1, int((l-silentLUFS)*binsPerLU))]
		bin.blocks++
		bin.power += block
	}
}

// lufs converts a mean power to LUFS.
func lufs(power float64) float64 { return -0.691 + 10*math.Log10(power) }

// Integrated returns the integrated loudness in LUFS. Silence and sound shorter than 400 ms have none.
func (m *LoudnessMeter) Integrated() (value float64, ok bool) {
	mean, ok := m.mean(0)
	if !ok {
		return 0, false
	}
	gate := int(math.Ceil((lufs(mean) + relativeGate - silentLUFS) * binsPerLU))
	mean, _ = m.mean(min(max(0, gate), gatingBins-1)) // the last bin also counts everything louder
	return lufs(mean), true
}

// mean returns the mean power of the gating blocks in bin from and above.
func (m *LoudnessMeter) mean(from int) (power float64, ok bool) {
	var sum gatingBin
	for _, b := range m.blocks[from:] {
		sum.blocks += b.blocks
		sum.power += b.power
	}
	return sum.power / float64(max(1, sum.blocks)), sum.blocks > 0
}

// TruePeak returns the highest true peak of all channels so far. 1 is full scale.
func (m *LoudnessMeter) TruePeak() float64 {
	var highest float64
	for i := range m.channels {
		highest = max(highest, m.peak(&m.channels[i]))
	}
	return highest
}

// peak returns the true peak of a channel so far. It extends the sound before its start by a mirror image, because a
// sound that begins with a cut has no peak at the cut.
func (m *LoudnessMeter) peak(c *loudnessChannel) float64 {
	if m.begun == 0 {
		for n := 1; n <= peakTaps; n++ {
			c.samples[peakTaps-n] = 0
			if n < m.hop {
				c.samples[peakTaps-n] = c.samples[peakTaps+n]
			}
		}
	}
	return truePeak(c.samples[:peakTaps+m.hop], c.peak)
}

// kWeighting contains the two filters that BS.1770 applies before measuring power, at SampleRate: a shelf for the head,
// and a high pass.
type kWeighting struct{ shelf, high [2]float64 }

// power filters samples and returns the sum of their squares.
func (k *kWeighting) power(samples []float64) (sum float64) {
	s1, s2, h1, h2 := k.shelf[0], k.shelf[1], k.high[0], k.high[1]
	for _, x := range samples {
		s := x + 1.69065929318241*s1 - 0.73248077421585*s2
		y := 1.53512485958697*s - 2.69169618940638*s1 + 1.19839281085285*s2
		h := y + 1.99004745483398*h1 - 0.99007225036621*h2
		z := h - 2*h1 + h2
		s1, s2, h1, h2 = s, s1, h, h1
		sum += z * z
	}
	k.shelf, k.high = [2]float64{settled(s1), settled(s2)}, [2]float64{settled(h1), settled(h2)}
	return sum
}

// settled flushes tiny filter states to zero before they become slow denormal numbers.
func settled(x float64) float64 {
	if math.Abs(x) < 1e-30 {
		return 0
	}
	return x
}

const (
	// The true peak is measured at peakPhases times the sample rate. Each interpolated value uses peakTaps samples.
	peakPhases = 4
	peakTaps   = 32
	peakStep   = peakTaps / 2 // samples checked together
)

// peakFilter is the low-pass filter for oversampling, by tap and phase. peakGain bounds how far an interpolated
// value can exceed its samples.
var peakFilter, peakGain = newPeakFilter()

func newPeakFilter() (filter [peakTaps][peakPhases]float64, gain float64) {
	const cutoff, beta = 0.97, 9
	for phase := range peakPhases {
		var sum, abs float64
		for tap := range filter {
			x := float64(tap-peakTaps/2) + float64(phase)/peakPhases
			w := 2 * x / peakTaps
			filter[tap][phase] = sinc(cutoff*x) * bessel(beta*math.Sqrt(max(0, 1-w*w)))
			sum += filter[tap][phase]
		}
		for tap := range filter {
			filter[tap][phase] /= sum
			abs += math.Abs(filter[tap][phase])
		}
		gain = max(gain, abs)
	}
	return filter, gain
}

func sinc(x float64) float64 {
	if x == 0 {
		return 1
	}
	return math.Sin(math.Pi*x) / (math.Pi * x)
}

// bessel is the modified Bessel function of the first kind and order 0.
func bessel(x float64) float64 {
	sum, term := 1.0, 1.0
	for k := 1.0; term > 1e-12*sum; k++ {
		term *= x * x / (4 * k * k)
		sum += term
	}
	return sum
}

// truePeak returns the highest value at and between the samples that follow the first peakTaps, or highest if that is
// higher. It skips the filter where samples cannot exceed highest, which is nearly everywhere.
func truePeak(samples []float64, highest float64) float64 {
	older, old := level(samples[:peakStep]), level(samples[peakStep:peakTaps])
	for at := peakTaps; at < len(samples); at += peakStep {
		end := min(at+peakStep, len(samples))
		now := level(samples[at:end])
		if max(older, old, now)*peakGain > highest {
			highest = max(highest, now, between(samples[at-peakTaps+1:end]))
		}
		older, old = old, now
	}
	return highest
}

// level returns the highest absolute sample.
func level(samples []float64) (highest float64) {
	for _, x := range samples {
		if x = math.Abs(x); x > highest {
			highest = x
		}
	}
	return highest
}

// between returns the highest value between samples.
func between(samples []float64) (highest float64) {
	for ; len(samples) >= peakTaps; samples = samples[1:] {
		var a, b, c, d float64 // four sums in parallel: a single one would wait for each addition
		for i, x := range (*[peakTaps]float64)(samples) {
			h := &peakFilter[i]
			a, b, c, d = a+h[0]*x, b+h[1]*x, c+h[2]*x, d+h[3]*x
		}
		highest = max(highest, math.Abs(a), math.Abs(b), math.Abs(c), math.Abs(d))
	}
	return highest
}
