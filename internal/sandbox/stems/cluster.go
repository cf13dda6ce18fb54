package stems

import (
	"math"
	"slices"
)

// maxFound bounds how many speakers are found without being told.
const maxFound = 6

// sameVoice is the distance up to which two groups of turns are one voice. See
// pitchWeight for the unit.
const sameVoice = 2.4

// group is a set of turns taken for one voice.
type group struct {
	members []int
	weight  float64 // steps of 10 ms
	mean    []float64
}

// cluster labels each turn with its speaker, numbered in order of appearance.
// n is the number of speakers wanted, or SpeakersFound.
func cluster(turns []turn, n int) []int {
	groups := make([]group, 0, len(turns))
	fillPitch(turns)
	for i, t := range turns {
		groups = append(groups, group{members: []int{i}, weight: float64(t.to - t.from), mean: slices.Clone(t.features)})
	}
	groups = thin(groups)
	for {
		a, b, distance := closest(groups)
		if a < 0 || n == SpeakersFound && distance > sameVoice && len(groups) <= maxFound || n != SpeakersFound && len(groups) <= n {
			break
		}
		groups = merge(groups, a, b)
	}
	if n == SpeakersFound {
		groups = absorbSmall(groups)
	}
	return number(groups, len(turns))
}

// fillPitch gives turns without a pitch (whispers, lone consonants) that of
// the nearest turn that has one, or an arbitrary common one.
func fillPitch(turns []turn) {
	for i := range turns {
		if !math.IsNaN(turns[i].features[0]) {
			continue
		}
		pitch := 7 * pitchWeight
		for d := 1; d < len(turns); d++ {
			if j := i - d; j >= 0 && !math.IsNaN(turns[j].features[0]) {
				pitch = turns[j].features[0]
				break
			}
			if j := i + d; j < len(turns) && !math.IsNaN(turns[j].features[0]) {
				pitch = turns[j].features[0]
				break
			}
		}
		turns[i].features[0] = pitch
	}
}

// thin joins neighbours in time until comparing all pairs is affordable; where
// voices alternate too quickly for that, it becomes less particular.
func thin(groups []group) []group {
	const affordable = 600
	tolerance := float64(sameVoice)
	for len(groups) > affordable {
		joined := make([]group, 0, len(groups))
		for i := 0; i < len(groups); i++ {
			if i+1 < len(groups) && apart(groups[i], groups[i+1]) < tolerance {
				joined = append(joined, join(groups[i], groups[i+1]))
				i++
			} else {
				joined = append(joined, groups[i])
			}
		}
		if len(joined) > len(groups)*3/4 {
			tolerance *= 1.5
		}
		groups = joined
	}
	return groups
}

// closest finds the pair of groups with the least distance, or -1.
func closest(groups []group) (a, b int, distance float64) {
	a, b, distance = -1, -1, math.Inf(1)
	for i := range groups {
		for j := i + 1; j < len(groups); j++ {
			if d := apart(groups[i], groups[j]); d < distance {
				a, b, distance = i, j, d
			}
		}
	}
	return a, b, distance
}

// apart is the distance of two groups. Short groups are blurred measurements,
// so that they join a neighbour rather than found a voice.
func apart(a, b group) float64 {
	var sum float64
	for i, v := range a.mean {
		sum += (v - b.mean[i]) * (v - b.mean[i])
	}
	sure := min(a.weight, b.weight) / (min(a.weight, b.weight) + 40)
	return math.Sqrt(sum) * (0.5 + 0.5*sure)
}

func join(a, b group) group {
	total := a.weight + b.weight
	out := group{members: append(slices.Clone(a.members), b.members...), weight: total, mean: make([]float64, len(a.mean))}
	for i := range out.mean {
		out.mean[i] = (a.mean[i]*a.weight + b.mean[i]*b.weight) / total
	}
	return out
}

func merge(groups []group, a, b int) []group {
	groups[a] = join(groups[a], groups[b])
	return slices.Delete(groups, b, b+1)
}

// absorbSmall gives groups too short to be a person to their nearest voice.
func absorbSmall(groups []group) []group {
	for {
		var total float64
		small := -1
		for i, g := range groups {
			total += g.weight
			if small < 0 || g.weight < groups[small].weight {
				small = i
			}
		}
		if len(groups) < 2 || groups[small].weight >= max(total*0.08, 70) {
			return groups
		}
		to, best := -1, math.Inf(1)
		for i := range groups {
			if d := apart(groups[small], groups[i]); i != small && d < best {
				to, best = i, d
			}
		}
		groups = merge(groups, min(to, small), max(to, small))
	}
}

// number labels the turns in order of each voice's first words.
func number(groups []group, turns int) []int {
	for _, g := range groups {
		slices.Sort(g.members)
	}
	slices.SortFunc(groups, func(a, b group) int { return a.members[0] - b.members[0] })
	labels := make([]int, turns)
	for label, g := range groups {
		for _, i := range g.members {
			labels[i] = label
		}
	}
	return labels
}
