package stems

import (
	"context"
	"math"
	"math/cmplx"
	"slices"
)

// voiceMask looks for a voice over an accompaniment. It first tells when
// somebody speaks (see activity). What is heard while nobody does is the
// accompaniment by itself; from it follows, for each moment of speech, how
// loud the accompaniment is at each frequency:
//
//   - music repeats: the moments without speech that fit under what is heard
//     now, without exceeding it, are what plays now;
//   - notes are steady: the median over half a second keeps a held note and
//     drops a syllable. It is believed up to the levels heard without speech.
//
// What is louder than that is voice, the more so the closer it stands to the
// middle of the stereo image.
type voiceMask struct {
	in        *pcm
	transform *fft
	shape     []float64
}

func newVoiceMask(in *pcm) *voiceMask {
	return &voiceMask{in: in, transform: newFFT(window), shape: hann(window)}
}

const (
	topBin       = 12000 * window / SampleRate // above this nothing is analysed
	lowBin       = 80 * window / SampleRate    // below this there is no voice
	contextCount = 6 * SampleRate / hop        // frames looked at on either side of a block
	steadySpan   = 51                          // frames of the steadiness median, 0.54 s
	likeCount    = 9                           // moments without speech that a moment is compared with
	coarseBands  = 48
)

// scene is the analysed neighbourhood of one block.
type scene struct {
	mags   [][]float32 // magnitude over both channels, [frame][bin <= topBin]
	centre [][]float32 // how much a bin stands in the middle, 0..1
	coarse [][]float32 // magnitudes in bands of equal ratio, compressed
}

func (v *voiceMask) masks(ctx context.Context, first, count int64) ([][]float32, error) {
	from := max(first-contextCount, 0)
	to := min(first+count+contextCount, frameCount(v.in.frames))
	s, err := v.analyse(ctx, from, to)
	if err != nil {
		return nil, err
	}
	active := s.activity()
	quiet := quietFrames(active)
	steady := s.steady(s.ceiling(quiet))
	active = spread(active, 16)
	out := make([][]float32, count)
	for i := range out {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		f := int(first + int64(i) - from)
		if active[f] == 0 {
			out[i] = make([]float32, bins)
			continue
		}
		s.raiseToAlike(steady[f], f, quiet)
		out[i] = widen(s.excess(f, steady[f]), active[f])
	}
	return out, nil
}

func (v *voiceMask) analyse(ctx context.Context, from, to int64) (*scene, error) {
	n := int(to - from)
	s := &scene{mags: make([][]float32, n), centre: make([][]float32, n), coarse: make([][]float32, n)}
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
		s.mags[f], s.centre[f], s.coarse[f] = mags, centre, compress(mags)
	}
	return s, nil
}

// compress is the spectrum in bands of equal ratio, as square roots, which
// keeps the loudest band from deciding alone.
func compress(mags []float32) []float32 {
	out := make([]float32, coarseBands)
	ratio := math.Log(float64(topBin)/float64(lowBin)) / coarseBands
	for b := range out {
		lo := int(float64(lowBin) * math.Exp(ratio*float64(b)))
		hi := max(int(float64(lowBin)*math.Exp(ratio*float64(b+1))), lo+1)
		var sum float64
		for _, m := range mags[lo:min(hi, len(mags))] {
			sum += float64(m)
		}
		out[b] = float32(math.Sqrt(sum / float64(hi-lo)))
	}
	return out
}

// quietFrames are the frames in which surely nobody speaks.
func quietFrames(active []float32) []int {
	var list []int
	for f, a := range spread(active, 4) {
		if a == 0 {
			list = append(list, f)
		}
	}
	return list
}

// ceiling is the level of each bin that is hardly exceeded without speech. It
// is no bound where there is too little to judge by.
func (s *scene) ceiling(quiet []int) []float32 {
	const enough = SampleRate / hop / 3
	out := make([]float32, topBin+1)
	values := make([]float32, 0, len(quiet))
	for k := range out {
		if len(quiet) < enough {
			out[k] = math.MaxFloat32
			continue
		}
		values = values[:0]
		for _, f := range quiet {
			values = append(values, s.mags[f][k])
		}
		slices.Sort(values)
		out[k] = values[len(values)*9/10] * 1.4
	}
	return out
}

// steady is the running median of each bin over time, up to the ceiling.
func (s *scene) steady(ceiling []float32) [][]float32 {
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
				out[f][k] = min(sorted[len(sorted)/2], ceiling[k])
			}
		}
	}
	return out
}

// raiseToAlike raises back, the background of frame f, to the median over the
// quiet frames that explain most of what is heard without exceeding it.
func (s *scene) raiseToAlike(back []float32, f int, quiet []int) {
	alike := s.alike(f, quiet)
	if len(alike) == 0 {
		return
	}
	values := make([]float32, len(alike))
	for k := range back {
		for i, g := range alike {
			values[i] = s.mags[g][k]
		}
		slices.Sort(values)
		back[k] = max(back[k], values[len(values)/2])
	}
}

// alike lists the quiet frames that fit best under frame f.
func (s *scene) alike(f int, quiet []int) []int {
	const tooMuch = 3 // what exceeds the frame counts so much against
	var best [likeCount]int
	var scores [likeCount]float32
	found := 0
	now := s.coarse[f]
	for _, g := range quiet {
		var score float32
		for b, x := range s.coarse[g] {
			if over := x - now[b]; over > 0 {
				score += now[b] - tooMuch*over
			} else {
				score += x
			}
		}
		if found == likeCount && score <= scores[found-1] {
			continue
		}
		found = min(found+1, likeCount)
		at := found - 1
		for ; at > 0 && scores[at-1] < score; at-- {
			best[at], scores[at] = best[at-1], scores[at-1]
		}
		best[at], scores[at] = g, score
	}
	return best[:found]
}

// excess is the voice's share of each bin, from what is above the background.
func (s *scene) excess(f int, back []float32) []float32 {
	out := make([]float32, topBin+1)
	for k := lowBin; k <= topBin; k++ {
		m, b := s.mags[f][k], back[k]*1.1
		if m <= b || m == 0 {
			continue
		}
		c := s.centre[f][k]
		out[k] = (1 - b*b/(m*m)) * (0.2 + 0.8*c*c)
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
