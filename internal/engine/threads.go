package engine

import (
	"context"
	"slices"
)

// threadPlanVersion is raised when the same situation would be planned differently.
const threadPlanVersion = 1

// threadPlan is who encodes what: how many encoders run at once and how many threads
// each has.
//
// Encoders of one thread waste nothing, and with enough of them all cores are
// busy; few parts need more threads each. Which it is depends on how many parts
// are missing, and x264's output depends on the threads. So the decision is made
// once for a plan and kept in the cache: a render that continues after a crash
// finds fewer parts missing, and must still give the same frames.
type threadPlan struct {
	Parallel int            `json:"parallel"`
	Threads  map[string]int `json:"threads"` // by part key; parts not named have the plan's
}

// planThreads decides for the missing parts of a plan, of which there are some.
func planThreads(p *Plan, missing []*videoPart, machine Machine) threadPlan {
	s := threadPlan{Parallel: p.Parallel, Threads: map[string]int{}}
	var largest int64
	for _, v := range missing {
		largest = max(largest, v.memory(1))
	}
	alone := min(machine.Cores, int(machine.MemoryBytes/largest)) // encoders of one thread that the machine holds
	if alone < machine.Cores || machine.Cores < 2 || len(missing) < 2*alone {
		return s
	}
	s.Parallel = alone
	// The last ones, which do not fill a round, keep their threads: they would
	// leave cores idle otherwise.
	ordered := slices.Clone(missing)
	slices.SortStableFunc(ordered, dearestFirst)
	for _, v := range ordered[:len(ordered)-len(ordered)%alone] {
		s.Threads[v.Key] = 1
	}
	return s
}

// assignThreads sets the threads of the missing parts, as an earlier attempt decided or
// anew, and returns how many passes run at once.
func (r *run) assignThreads(ctx context.Context, missing []*videoPart) (parallel int, err error) {
	if len(missing) == 0 {
		return r.plan.Parallel, nil
	}
	s, ok := r.loadThreadPlan(ctx)
	if !ok {
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

// loadThreadPlan returns what was decided for the plan, if anything was.
func (r *run) loadThreadPlan(ctx context.Context) (s threadPlan, ok bool) {
	if !r.fetchJSON(ctx, r.threadPlanKey(), &s) || s.Parallel < 1 {
		return threadPlan{}, false
	}
	return s, true
}

// threadPlanKey names the decision for the plan on a machine of this kind.
func (r *run) threadPlanKey() string {
	k := newKey(kindThreads).add("version", threadPlanVersion).add("machine", r.machine())
	for _, v := range r.plan.Parts {
		k = k.add("part", v.Key)
	}
	return k.String() + ".json"
}
