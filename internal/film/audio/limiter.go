package audio

import "math"

// limiter keeps a mix within full scale. It looks ahead, so the gain has already fallen when a peak arrives. It returns
// frames unchanged, bit for bit, as long as no sample exceeds the threshold, and never raises a quiet mix.
type limiter struct {
	threshold, ceiling float64 // peaks above the threshold are lowered to the ceiling

	delay []frame // ring of the frames not yet returned
	at    int

	// need is a ring of the gains that the delayed frames require. low is a monotonic queue over it: the positions of
	// its rising minima.
	low    []lowPoint
	count  int64 // frames pushed
	held   float64
	smooth []float64 // ring of the latest held gains, whose average is the gain
	sum    float64
	below  int // how many entries of smooth are below 1

	peak float64 // highest sample pushed
}

type lowPoint struct {
	at   int64
	gain float64
}

const (
	// lookAhead is how long before a peak the gain starts to fall, in samples: 5 ms.
	lookAhead = SampleRate / 200
)

// release is the fraction of the distance to 1 that the gain recovers per sample: a time constant of 80 ms.
var release = 1 - math.Exp(-1/(0.080*SampleRate))

func newLimiter(threshold, ceiling float64) *limiter {
	l := &limiter{threshold: threshold, ceiling: ceiling, delay: make([]frame, lookAhead),
		smooth: make([]float64, lookAhead), held: 1, sum: lookAhead}
	for i := range l.smooth {
		l.smooth[i] = 1
	}
	return l
}

// push pushes a frame and returns the one pushed lookAhead frames earlier, limited. The first lookAhead results are
// silence and must be dropped; push as many frames of silence to flush the end.
func (l *limiter) push(in frame) frame {
	peak := max(math.Abs(in[0]), math.Abs(in[1]))
	l.peak = max(l.peak, peak)
	if peak > l.threshold {
		want := l.ceiling / peak
		for len(l.low) > 0 && l.low[len(l.low)-1].gain >= want {
			l.low = l.low[:len(l.low)-1]
		}
		l.low = append(l.low, lowPoint{l.count, want})
	}
	for len(l.low) > 0 && l.low[0].at < l.count-lookAhead {
		l.low = l.low[1:]
	}
	lowest := 1.0
	if len(l.low) > 0 {
		lowest = l.low[0].gain
	}
	if lowest < l.held {
		l.held = lowest
	} else if l.held += (lowest - l.held) * release; lowest == 1 && 1-l.held < 1e-6 {
		l.held = 1
	}
	old, out := l.smooth[l.at], l.delay[l.at]
	l.smooth[l.at], l.delay[l.at] = l.held, in
	l.at = (l.at + 1) % lookAhead
	l.count++
	l.sum += l.held - old
	if old < 1 {
		l.below--
	}
	if l.held < 1 {
		l.below++
	}
	if l.below == 0 {
		l.sum = lookAhead
		return out
	}
	gain := min(l.sum/lookAhead, 1)
	return frame{clip(out[0] * gain), clip(out[1] * gain)}
}

func clip(x float64) float64 { return max(-1, min(1, x)) }
