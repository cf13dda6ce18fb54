package engine

import (
	"context"
	"math"
)

// A sound that sets in all at once, such as a clap, a drum or a plosive, is what
// the ear judges sync by. Attacks are found by energy in steps of a millisecond:
// one is where the next steps hold attackRise times what any of the steps before
// held.
const (
	attackStep   = sampleRate / 1000 // samples
	attackBefore = 25                // steps; more than a period of the lowest tone
	attackAhead  = 5                 // steps in which the rise must be over
	attackRise   = 8                 // 9 dB
	attackFloor  = attackStep * 1e-5 // energy of a step at -50 dBFS: what is softer is no attack
)

// attacks returns the samples of [from, to) at which a sound sets in, at least
// apart from each other and from both ends. Whether a sample is one depends on
// its neighbourhood alone and not on where the range begins.
func attacks(ctx context.Context, in *pcmFile, from, to, apart int64) ([]int64, error) {
	first := floorDiv(from, attackStep)
	end := floorDiv(to, attackStep) + 1
	// The last attackBefore+attackAhead+1 energies, in a ring.
	const ringed = attackBefore + attackAhead + 1
	var ring [ringed]float64
	at := func(step int64) float64 { return ring[((step%ringed)+ringed)%ringed] }
	var found []int64
	last := from
	block := make([]frame, 1000*attackStep)
	for step := first - attackBefore; step < end+attackAhead; {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		n := min(int64(len(block)/attackStep), end+attackAhead-step)
		if err := in.read(block[:n*attackStep], step*attackStep); err != nil {
			return nil, err
		}
		for i := range n {
			var energy float64
			for _, f := range block[i*attackStep : (i+1)*attackStep] {
				energy += f[0]*f[0] + f[1]*f[1]
			}
			ring[((step%ringed)+ringed)%ringed] = energy
			// The step judged lies attackAhead before the one just read.
			judged := step - attackAhead
			step++
			if judged < first || judged*attackStep < last+apart || judged*attackStep > to-apart {
				continue
			}
			var before, ahead float64
			for k := range int64(attackBefore) {
				before = max(before, at(judged-1-k))
			}
			for k := range int64(attackAhead + 1) {
				ahead = max(ahead, at(judged+k))
			}
			if ahead < attackRise*before+attackFloor || at(judged) < ahead/16 {
				continue // too soft, or it has not begun yet: lossy codecs smear some of an attack before it
			}
			last = judged * attackStep
			found = append(found, last)
		}
	}
	return found, nil
}

func floorDiv(a, b int64) int64 { return int64(math.Floor(float64(a) / float64(b))) }
