// Repeats a range of a sound without a click: where the end does not meet the beginning, it cross-fades into a
// prediction of what would precede the beginning.

package audio

import (
	"math"
	"slices"
)

const (
	// loopCross is the length, in samples, of the cross-fade at the end of each repetition: 5 ms.
	loopCross = 5 * SampleRate / 1000
	// loopHead is how many samples of a loop's beginning are used to predict what could precede it.
	loopHead = 2048
	// loopOrder is the order of the linear prediction.
	loopOrder = 48
	// loopEdge is how many samples at each end are used to measure how rough the sound is there.
	loopEdge = 32
	// loopFloor is an inaudible bend of the waveform: -80 dBFS.
	loopFloor = 1e-4
)

// loop repeats the samples [first, first+period) of a file without a gap.
type loop struct {
	first, period int64
	// joint replaces the last samples of a repetition that is followed by another one. It is empty if the ends meet
	// without a click.
	joint []frame
	whole []frame // all samples of the period if it is short: a block may hold many repetitions
}

func newLoop(in *pcmFile, first, period int64) (*loop, error) {
	l := &loop{first: first, period: period}
	head, tail := make([]frame, min(loopHead, period)), make([]frame, min(loopCross, period/4))
	if err := in.read(head, first); err != nil {
		return nil, err
	}
	if err := in.read(tail, first+period-int64(len(tail))); err != nil {
		return nil, err
	}
	if period <= mixBlock {
		l.whole = make([]frame, period)
		if err := in.read(l.whole, first); err != nil {
			return nil, err
		}
	}
	if len(tail) >= loopEdge && !endsMeet(tail, head) {
		l.joint = joinEnds(tail, head)
	}
	return l, nil
}

// read fills dst with what plays n samples after the start of the first repetition, in a region of length samples.
func (l *loop) read(in *pcmFile, dst []frame, n, length int64) error {
	for len(dst) > 0 {
		at := n % l.period
		m := min(int64(len(dst)), l.period-at)
		if l.whole != nil {
			copy(dst[:m], l.whole[at:])
		} else if err := in.read(dst[:m], l.first+at); err != nil {
			return err
		}
		if n-at+l.period < length { // another repetition follows
			l.putJoint(dst[:m], at)
		}
		n += m
		dst = dst[m:]
	}
	return nil
}

// putJoint overwrites the samples of dst that belong to the joint. The first sample of dst is number at of its
// repetition.
func (l *loop) putJoint(dst []frame, at int64) {
	begin := l.period - int64(len(l.joint))
	if skip := begin - at; skip < int64(len(dst)) {
		copy(dst[max(0, skip):], l.joint[max(0, -skip):])
	}
}

// endsMeet reports whether head continues tail without a bend that is sharper than the sound nearby.
func endsMeet(tail, head []frame) bool {
	tail = tail[len(tail)-loopEdge:]
	for side := range 2 {
		around := make([]float64, 0, 2*loopEdge)
		for _, f := range tail {
			around = append(around, f[side])
		}
		for _, f := range head[:loopEdge] {
			around = append(around, f[side])
		}
		var usual, joint float64
		for i := 1; i < len(around)-1; i++ {
			bend := math.Abs(around[i-1] - 2*around[i] + around[i+1])
			if i == loopEdge-1 || i == loopEdge {
				joint = max(joint, bend)
			} else {
				usual = max(usual, bend)
			}
		}
		if joint > 1.5*usual+loopFloor {
			return false
		}
	}
	return true
}

// joinEnds cross-fades tail into a prediction of what would precede head, so that the beginning of the loop, which may
// be a beat, stays unchanged.
func joinEnds(tail, head []frame) []frame {
	joint := make([]frame, len(tail))
	for side := range 2 {
		reversed := make([]float64, len(head))
		for i, f := range head {
			reversed[len(head)-1-i] = f[side]
		}
		before := extrapolate(reversed, min(loopOrder, len(head)/4), len(tail))
		for i, f := range tail {
			half := math.Sin(math.Pi / 2 * ramp(int64(i), int64(len(tail))))
			joint[i][side] = (1-half*half)*f[side] + half*half*before[len(tail)-1-i]
		}
	}
	return joint
}

// extrapolate returns the next n samples of a signal by linear prediction. Its coefficients come from Burg's
// method, so the prediction never grows.
func extrapolate(signal []float64, order, n int) []float64 {
	coefficients := burg(signal, order)
	all := append(make([]float64, 0, len(signal)+n), signal...)
	for range n {
		var next float64
		for k, c := range coefficients {
			next -= c * all[len(all)-1-k]
		}
		all = append(all, next)
	}
	return all[len(signal):]
}

// burg returns the coefficients a of the prediction x[i] = -(a[0]x[i-1] + a[1]x[i-2] + ...) that minimise the forward
// and backward prediction errors.
func burg(signal []float64, order int) []float64 {
	forward, backward := slices.Clone(signal), slices.Clone(signal)
	a := make([]float64, 0, order)
	for m := range order {
		var both, energy float64
		for i := m + 1; i < len(signal); i++ {
			both += forward[i] * backward[i-1]
			energy += forward[i]*forward[i] + backward[i-1]*backward[i-1]
		}
		if energy < 1e-12 {
			break // perfectly predicted, or silence
		}
		k := -2 * both / energy
		for i := len(signal) - 1; i > m; i-- {
			f, b := forward[i], backward[i-1]
			forward[i], backward[i] = f+k*b, b+k*f
		}
		old := slices.Clone(a)
		for i := range a {
			a[i] += k * old[len(old)-1-i]
		}
		a = append(a, k)
	}
	return a
}
