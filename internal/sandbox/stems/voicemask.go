package stems

import (
	"context"
	"math"
	"math/cmplx"
	"slices"
)

// voiceMask looks for a voice over an accompaniment. For each time and
// frequency it estimates how loud the accompaniment is there, from three facts
// about music that speech does not share, and calls the excess voice:
//
//   - notes are steady: the median over half a second keeps a held note and
//     drops a syllable (harmonic/percussive separation);
//   - music repeats: the median over the most similar other moments of the
//     piece keeps the pattern and drops the words (REPET-SIM);
//   - in stereo, the voice stands in the middle.
//
// Where the excess does not behave like speech, which comes in syllables and
// pauses, everything is accompaniment (voice activity).
type voiceMask struct {
	in        *pcm
	transform *fft
	shape     []float64
	// loudest is the level of the loudest voice so far, which a pause is
	// measured against. It falls slowly.
	loudest float64
}

func newVoiceMask(in *pcm) *voiceMask {
	return &voiceMask{in: in, transform: newFFT(window), shape: hann(window)}
}

const (
	topBin       = 12000 * window / SampleRate // above this nothing is analysed
	lowBin       = 90 * window / SampleRate    // below this there is no voice
	contextCount = 3 * SampleRate / hop        // frames looked at on either side of a block
	steadySpan   = 51                          // frames of the steadiness median, 0.54 s
	similarCount = 14                          // moments compared with
	similarGap   = SampleRate / hop / 2        // least distance between two moments, frames
	similarBands = 48
)

// scene is the analysed neighbourhood of one block.
type scene struct {
	first  int64       // number of frame 0 of the scene in the whole audio
	mags   [][]float32 // magnitude of the louder-channel mix, [frame][bin <= topBin]
	centre [][]float32 // how much a bin stands in the middle, 0..1
	bands  [][]float32 // coarse spectrum for comparing moments, unit length
}

func (v *voiceMask) masks(ctx context.Context, first, count int64) ([][]float32, error) {
	from := max(first-contextCount, 0)
	to := min(first+count+contextCount, frameCount(v.in.frames))
	s, err := v.analyse(ctx, from, to)
	if err != nil {
		return nil, err
	}
	back := s.steady()
	if err := s.raiseToRepeating(ctx, back); err != nil {
		return nil, err
	}
	raw := make([][]float32, len(s.mags))
	for f := range raw {
		raw[f] = s.excess(f, back[f])
	}
	activity := v.activity(s, raw)
	out := make([][]float32, count)
	for i := range out {
		f := first + int64(i) - from
		out[i] = widen(raw[f], activity[f])
	}
	return out, nil
}

func (v *voiceMask) analyse(ctx context.Context, from, to int64) (*scene, error) {
	n := int(to - from)
	s := &scene{first: from, mags: make([][]float32, n), centre: make([][]float32, n), bands: make([][]float32, n)}
	samples, err := v.in.read(frameStart(from), (to-from)*hop+window)
	if err != nil {
		return nil, err
	}
	spectrum := make([]complex128, window)
	for f := range n {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		load(samples[f*hop*Channels:][:window*Channels], v.shape, spectrum)
		v.transform.forward(spectrum)
		mags, centre := make([]float32, topBin+1), make([]float32, topBin+1)
		for k := range mags {
			// Two real channels come out of one complex spectrum by symmetry.
			a, b := spectrum[k], cmplx.Conj(spectrum[(window-k)%window])
			left, right := (a+b)/2, (a-b)/2i
			power := real(left)*real(left) + imag(left)*imag(left) + real(right)*real(right) + imag(right)*imag(right)
			cross := real(left)*real(right) + imag(left)*imag(right)
			mags[k] = float32(math.Sqrt(power))
			centre[k] = 1
			if power > 1e-9 {
				centre[k] = float32(max(2*cross/power, 0))
			}
		}
		s.mags[f], s.centre[f], s.bands[f] = mags, centre, coarse(mags)
	}
	return s, nil
}

// coarse is the log spectrum in bands of equal ratio, scaled to unit length.
func coarse(mags []float32) []float32 {
	out := make([]float32, similarBands)
	ratio := math.Log(float64(topBin)/float64(lowBin)) / similarBands
	var mean float64
	for b := range out {
		lo := int(float64(lowBin) * math.Exp(ratio*float64(b)))
		hi := max(int(float64(lowBin)*math.Exp(ratio*float64(b+1))), lo+1)
		var sum float64
		for _, m := range mags[lo:min(hi, len(mags))] {
			sum += float64(m)
		}
		out[b] = float32(math.Log1p(sum / float64(hi-lo) / 50))
		mean += float64(out[b]) / similarBands
	}
	var norm float64
	for b := range out {
		out[b] -= float32(mean)
		norm += float64(out[b]) * float64(out[b])
	}
	if norm > 0 {
		scale := float32(1 / math.Sqrt(norm))
		for b := range out {
			out[b] *= scale
		}
	}
	return out
}

// steady is the running median of each bin over time.
func (s *scene) steady() [][]float32 {
	n := len(s.mags)
	out := make([][]float32, n)
	for f := range out {
		out[f] = make([]float32, topBin+1)
	}
	sorted := make([]float32, 0, steadySpan)
	for k := range topBin + 1 {
		sorted = sorted[:0]
		for f := -steadySpan / 2; f < n; f++ {
			if in := f + steadySpan/2; in < n {
				v := s.mags[in][k]
				at, _ := slices.BinarySearch(sorted, v)
				sorted = slices.Insert(sorted, at, v)
			}
			if gone := f - steadySpan/2 - 1; gone >= 0 {
				at, _ := slices.BinarySearch(sorted, s.mags[gone][k])
				sorted = slices.Delete(sorted, at, at+1)
			}
			if f >= 0 {
				out[f][k] = sorted[len(sorted)/2]
			}
		}
	}
	return out
}

// raiseToRepeating raises back to the median over the moments that sound most
// alike, where that is louder.
func (s *scene) raiseToRepeating(ctx context.Context, back [][]float32) error {
	values := make([]float32, 0, similarCount+1)
	for f := range s.mags {
		if err := ctx.Err(); err != nil {
			return err
		}
		near := s.similar(f)
		if len(near) < similarCount/2 {
			continue
		}
		for k := range back[f] {
			values = values[:0]
			for _, g := range near {
				values = append(values, s.mags[g][k])
			}
			slices.Sort(values)
			if m := min(values[len(values)/2], s.mags[f][k]); m > back[f][k] {
				back[f][k] = m
			}
		}
	}
	return nil
}

// similar lists the frames that sound most like frame f, one per moment.
func (s *scene) similar(f int) []int {
	type match struct {
		frame int
		score float32
	}
	// The best frame of every stretch of similarGap stands for that moment.
	var best []match
	mine := s.bands[f]
	for start := 0; start < len(s.bands); start += similarGap {
		top := match{frame: -1, score: 0}
		for g := start; g < min(start+similarGap, len(s.bands)); g++ {
			if g > f-similarGap && g < f+similarGap {
				continue
			}
			var score float32
			for b, x := range s.bands[g] {
				score += x * mine[b]
			}
			if score > top.score {
				top = match{g, score}
			}
		}
		if top.frame >= 0 {
			best = append(best, top)
		}
	}
	slices.SortFunc(best, func(a, b match) int {
		switch {
		case a.score > b.score:
			return -1
		case a.score < b.score:
			return 1
		}
		return a.frame - b.frame
	})
	best = best[:min(len(best), similarCount)]
	frames := make([]int, len(best))
	for i, m := range best {
		frames[i] = m.frame
	}
	return frames
}

// excess is the voice's share of each bin, from what is above the background.
func (s *scene) excess(f int, back []float32) []float32 {
	out := make([]float32, topBin+1)
	for k := lowBin; k <= topBin; k++ {
		m, b := s.mags[f][k], back[k]*1.15
		over := max(m-b, 0)
		share := over * over / (over*over + b*b + 1)
		c := s.centre[f][k]
		out[k] = share * (0.2 + 0.8*c*c)
	}
	return out
}

// activity is how sure it is that somebody speaks in a frame, 0..1.
func (v *voiceMask) activity(s *scene, raw [][]float32) []float32 {
	const lowHz, highHz = 200, 4000
	n := len(raw)
	level := make([]float64, n) // of the excess in the band of speech
	share := make([]float64, n) // of it in the whole
	for f := range raw {
		var voice, all float64
		for k := lowHz * window / SampleRate; k <= highHz*window/SampleRate; k++ {
			p := float64(s.mags[f][k]) * float64(s.mags[f][k])
			voice += p * float64(raw[f][k])
			all += p
		}
		level[f], share[f] = voice, voice/(all+1)
	}
	level, share = smooth(level, 10), smooth(share, 10)
	v.loudest *= 0.7
	for _, l := range level {
		v.loudest = max(v.loudest, l)
	}
	out := make([]float32, n)
	for f := range out {
		loud := 10*math.Log10((level[f]+1)/(v.loudest+1)) + 24 // dB over 24 below the loudest
		sure := min(ramp(loud, 0, 6), ramp(share[f], 0.08, 0.2))
		out[f] = float32(sure)
	}
	return spread(out, 8)
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

// spread holds each value for half frames on either side, so that the onsets
// and ends of words are kept.
func spread(v []float32, half int) []float32 {
	out := make([]float32, len(v))
	for i := range v {
		out[i] = slices.Max(v[max(i-half, 0):min(i+half+1, len(v))])
	}
	return out
}

// widen applies the activity and continues the mask above topBin at the level
// of its upper end.
func widen(mask []float32, sure float32) []float32 {
	out := make([]float32, bins)
	var upper float32
	const upperFrom = topBin * 3 / 4
	for k, m := range mask {
		out[k] = m * sure
		if k > upperFrom {
			upper += out[k] / (topBin - upperFrom)
		}
	}
	for k := len(mask); k < bins; k++ {
		out[k] = upper
	}
	return out
}
