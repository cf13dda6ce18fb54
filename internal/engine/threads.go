package engine

import (
	"context"
	"slices"
)

// Raise threadPlanVersion when the same situation gives another plan.
const threadPlanVersion = 3

// threadPlan sets how many encoders run at once and how many threads each has. Single-threaded encoders waste
// nothing, and enough of them keep all cores busy; a few parts need more threads. x264's output depends on its
// threads, and a render that continues after a crash has fewer missing parts but must give the same frames, so the
// plan is made once and cached.
type threadPlan struct {
	Parallel int            `json:"parallel"`
	Threads  map[string]int `json:"threads"` // by part key; other parts have the plan's
}

// planThreads plans the threads for the missing parts of a plan, of which there must be at least one.
func planThreads(p *Plan, missing []*videoPart, machine Machine) threadPlan {
	s := threadPlan{Parallel: p.Parallel, Threads: map[string]int{}}
	// How many single-threaded encoders fit into memory.
	alone := min(machine.Cores, int(machine.MemoryBytes/largestMemory(missing, 1)))
	if alone < machine.Cores || machine.Cores < 2 || !keepBusy(missing, alone) {
		return s
	}
	s.Parallel = alone
	// The last parts, which do not fill a round, keep several threads. Otherwise they would leave cores idle.
	ordered := slices.Clone(missing)
	slices.SortStableFunc(ordered, mostExpensiveFirst)
	for _, v := range ordered[:len(ordered)-len(ordered)%alone] {
		s.Threads[v.Key] = 1
	}
	return s
}

// keepBusy reports whether n single-threaded encoders keep all cores busy: two rounds of parts do, or one of similar
// cost.
func keepBusy(parts []*videoPart, n int) bool {
	var total, longest float64
	for _, v := range parts {
		total += v.cost()
		longest = max(longest, v.cost())
	}
	return len(parts) >= 2*n || len(parts) >= n && longest*float64(n) <= 1.1*total
}

// assignThreads sets the threads of the missing parts from an earlier attempt's plan or from a new one, and returns
// how many passes run at once.
func (r *run) assignThreads(ctx context.Context, missing []*videoPart) (parallel int, err error) {
	if len(missing) == 0 {
		return r.plan.Parallel, nil
	}
	var s threadPlan
	if !r.fetchJSON(ctx, r.threadPlanKey(), &s) {
		s = planThreads(r.plan, missing, r.machine())
		if err := r.keepJSON(ctx, r.threadPlanKey(), s); err != nil {
			return 0, err
		}
	}
	s.apply(missing)
	return s.Parallel, nil
}

// apply sets the threads of the parts.
func (s threadPlan) apply(parts []*videoPart) {
	for _, v := range parts {
		if n := s.Threads[v.Key]; n > 0 {
			v.threads = n
		}
	}
}

// threadPlanKey is the cache key of the thread plan for machines like this one.
func (r *run) threadPlanKey() string {
	k := newKey(kindThreads).add("version", threadPlanVersion).add("machine", r.machine())
	for _, v := range r.plan.Parts {
		k = k.add("part", v.Key)
	}
	return k.String() + ".json"
}
