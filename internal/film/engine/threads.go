package engine

import (
	"slices"
)

// atOnce returns how many parts of a plan the machine encodes at once if the encoder of one of them has that many
// threads.
func (m Machine) atOnce(p *Plan, threads int) int {
	if threads != 1 {
		return p.Parallel
	}
	return max(1, min(m.Cores, int(m.MemoryBytes/largestMemory(p.Parts, 1))))
}

// planThreads sets the threads of the encoders of the missing parts, of which there must be at least one. Single-threaded
// encoders waste nothing, and enough of them keep all cores busy; a few parts need more threads. x264's output depends on
// its threads, and a render that continues after a crash has fewer missing parts but must give the same frames, so the
// [PartCoordinator] remembers them.
func planThreads(p *Plan, missing []*videoPart, machine Machine) {
	alone := machine.atOnce(p, 1)
	if alone < machine.Cores || machine.Cores < 2 || !keepBusy(missing, alone) {
		return
	}
	// The last parts, which do not fill a round, keep several threads. Otherwise they would leave cores idle.
	ordered := slices.Clone(missing)
	slices.SortStableFunc(ordered, mostExpensiveFirst)
	for _, v := range ordered[:len(ordered)-len(ordered)%alone] {
		v.threads = 1
	}
}

// keepBusy reports whether n single-threaded encoders keep all cores busy: two rounds of parts do, and so does one
// round of parts of similar cost.
func keepBusy(parts []*videoPart, n int) bool {
	var total, longest float64
	for _, v := range parts {
		total += v.cost()
		longest = max(longest, v.cost())
	}
	return len(parts) >= 2*n || len(parts) >= n && longest*float64(n) <= 1.1*total
}
