package audio

import (
	"context"
	"math"
)

// A sudden start of a sound, such as a clap, a drum or a plosive, is what listeners judge sync by. Onsets are found by
// energy in steps of one millisecond: at an onset, the next steps have onsetRise times the energy of each previous
// step.
const (
	onsetStep   = SampleRate / 1000 // samples
	onsetBefore = 25                // steps; longer than a period of the lowest tone
	onsetAhead  = 5                 // steps within which the rise must be complete
	onsetRise   = 8                 // 9 dB
	onsetFloor  = onsetStep * 1e-5  // energy of a step at -50 dBFS: softer sounds do not count
)

// onsets returns the samples in [from, to) at which a sound starts suddenly and, if ends is set, those at which one
// ends suddenly. Each is at least apart(at) samples from the previous one and from both ends. Whether a sample is an
// onset depends only on its neighbourhood, not on where the range begins.
func onsets(ctx context.Context, in *pcmFile, from, to int64, apart func(at int64) int64, ends bool) ([]int64, error) {
	first := floorDiv(from, onsetStep)
	end := floorDiv(to, onsetStep) + 1
	lookahead := int64(onsetAhead)
	if ends {
		lookahead = onsetBefore // an end is an onset of the sound played backwards
	}
	// The last energies, in a ring.
	const ringed = 2*onsetBefore + 1
	var ring [ringed]float64
	at := func(step int64) *float64 { return &ring[((step%ringed)+ringed)%ringed] }
	var found []int64
	last := from
	block := make([]frame, 1000*onsetStep)
	for step := first - onsetBefore; step < end+lookahead; {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		n := min(int64(len(block)/onsetStep), end+lookahead-step)
		if err := in.read(block[:n*onsetStep], step*onsetStep); err != nil {
			return nil, err
		}
		for i := range n {
			var energy float64
			for _, f := range block[i*onsetStep : (i+1)*onsetStep] {
				energy += f[0]*f[0] + f[1]*f[1]
			}
			*at(step) = energy
			// The judged step is lookahead steps before the one just read.
			judged := step - lookahead
			step++
			space := apart(judged * onsetStep)
			if judged < first || judged*onsetStep < last+space || judged*onsetStep > to-space {
				continue
			}
			// sudden compares the steps on one side of a position with those on the other.
			sudden := func(quiet, loud, direction int64) bool {
				var before, ahead float64
				for k := range int64(onsetBefore) {
					before = max(before, *at(quiet - direction*k))
				}
				for k := range int64(onsetAhead + 1) {
					ahead = max(ahead, *at(loud + direction*k))
				}
				// Loud enough, and really begun: lossy codecs smear part of an onset into the time before it.
				return ahead >= onsetRise*before+onsetFloor && *at(loud) >= ahead/16
			}
			if !sudden(judged-1, judged, 1) && !(ends && sudden(judged, judged-1, -1)) {
				continue
			}
			last = judged * onsetStep
			found = append(found, last)
		}
	}
	return found, nil
}

func floorDiv(a, b int64) int64 { return int64(math.Floor(float64(a) / float64(b))) }
