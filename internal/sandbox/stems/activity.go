package stems

import "math"

// Voice activity: two facts tell speech from music, whatever their levels.
//
// A note, once struck, keeps its partials where they are; a voice glides, so
// that its fine spectral structure is another one 85 ms later. And a voice
// changes its timbre with every sound of the language, an instrument hardly.
// The thresholds lie between what was measured on speech (real and
// synthesised) mixed at equal loudness with music, and on that music alone.
const (
	speechLowBin   = 300 * window / SampleRate
	speechHighBin  = 4000 * window / SampleRate
	glideFrames    = 8    // 85 ms: two windows that share nothing
	glideThreshold = 0.41 // correlation of the fine structure; music lies above
	glideSpread    = 0.06
	timbreFrames   = 6  // 64 ms
	timbreLevel    = 13 // sum of log changes over timbre bands; speech lies above
	timbreSpread   = 6
)

// activity is how sure it is that somebody speaks in each frame, 0..1.
func (s *scene) activity() []float32 {
	n := len(s.mags)
	fine := make([][]float64, n)
	for f := range fine {
		fine[f] = fineStructure(s.mags[f])
	}
	glide, timbre := make([]float64, n), make([]float64, n)
	for f := range n {
		before, after := max(f-glideFrames, 0), min(f+glideFrames, n-1)
		glide[f] = max(cosine(fine[f], fine[before]), cosine(fine[f], fine[after]))
		timbre[f] = timbreChange(s.mags[f], s.mags[max(f-timbreFrames, 0)])
	}
	glide, timbre = smooth(glide, 12), smooth(smooth(timbre, 20), 12)
	out := make([]float32, n)
	for f := range out {
		score := min(max((glideThreshold-glide[f])/glideSpread, -3), 0.8) + (timbre[f]-timbreLevel)/timbreSpread
		out[f] = float32(ramp(score, -1, 0))
	}
	return out
}

// fineStructure is the log spectrum of the band of speech without its
// envelope: partials stick out of it.
func fineStructure(mags []float32) []float64 {
	const margin = 6
	logs := make([]float64, speechHighBin-speechLowBin+2*margin)
	for i := range logs {
		logs[i] = math.Log(float64(mags[speechLowBin-margin+i]) + 30)
	}
	envelope := smooth(logs, margin)
	out := make([]float64, speechHighBin-speechLowBin)
	for i := range out {
		out[i] = logs[margin+i] - envelope[margin+i]
	}
	return out
}

func cosine(a, b []float64) float64 {
	var ab, aa, bb float64
	for i, v := range a {
		ab += v * b[i]
		aa += v * v
		bb += b[i] * b[i]
	}
	return ab / math.Sqrt(aa*bb+1e-9)
}

// timbreChange sums the change of level over bands of 300 Hz every 190 Hz.
func timbreChange(now, before []float32) float64 {
	var sum float64
	for k := speechLowBin; k < speechHighBin; k += 8 {
		var x, y float64
		for j := k - 6; j <= k+6; j++ {
			x += float64(now[j])
			y += float64(before[j])
		}
		sum += math.Abs(math.Log((x + 300) / (y + 300)))
	}
	return sum
}

func ramp(v, low, high float64) float64 { return min(max((v-low)/(high-low), 0), 1) }

// smooth is a moving mean over 2·half+1 values.
func smooth(v []float64, half int) []float64 {
	sums := make([]float64, len(v)+1)
	for i, x := range v {
		sums[i+1] = sums[i] + x
	}
	out := make([]float64, len(v))
	for i := range v {
		lo, hi := max(i-half, 0), min(i+half+1, len(v))
		out[i] = (sums[hi] - sums[lo]) / float64(hi-lo)
	}
	return out
}
