package meter

import (
	"math"
	"time"
)

// Unmix finds how loud each of several known sounds is in a mix: the gains with
// which their sum comes closest to it (least squares), and how loud what
// remains is relative to the mix, in dB. All sounds are as long as the mix. A
// sound that is silent, or the same as others together, gets NaN.
func Unmix(mix Sound, parts []Sound) (gains []float64, rest float64) {
	n := len(parts)
	gains = make([]float64, n)
	matrix := make([][]float64, 0, n)
	var used []int
	for i, p := range parts {
		gains[i] = math.NaN()
		if p.Level() > -75 {
			used = append(used, i)
		}
	}
	for _, i := range used {
		row := make([]float64, 0, len(used)+1)
		for _, j := range used {
			row = append(row, dot(parts[i], parts[j]))
		}
		matrix = append(matrix, append(row, dot(parts[i], mix)))
	}
	for k, v := range solve(matrix) {
		gains[used[k]] = v
	}
	left := subtract(mix, parts, gains)
	return gains, 10 * math.Log10(dot(left, left)/dot(mix, mix))
}

// solve solves a small symmetric system by elimination; unknowns that it does
// not determine are NaN.
func solve(m [][]float64) []float64 {
	n := len(m)
	scale := make([]float64, n)
	for i := range m {
		scale[i] = m[i][i]
	}
	determined := make([]bool, n)
	for i := range m {
		// What is left of the pivot says how much of this sound the others do
		// not already hold.
		if m[i][i] < 1e-6*scale[i] || scale[i] == 0 {
			continue
		}
		determined[i] = true
		for j := range m {
			if j == i {
				continue
			}
			f := m[j][i] / m[i][i]
			for k := i; k <= n; k++ {
				m[j][k] -= f * m[i][k]
			}
		}
	}
	out := make([]float64, n)
	for i := range m {
		out[i] = math.NaN()
		if determined[i] {
			out[i] = m[i][n] / m[i][i]
		}
	}
	return out
}

// subtract is the mix without its parts; parts with a gain of NaN stay in.
func subtract(mix Sound, parts []Sound, gains []float64) Sound {
	out := mix.Cut(0, mix.Length())
	for i, p := range parts {
		g := float32(gains[i])
		if g != g { //nolint:staticcheck // NaN
			continue
		}
		for k := range min(len(out.L), len(p.L)) {
			out.L[k] -= g * p.L[k]
			out.R[k] -= g * p.R[k]
		}
	}
	return out
}

// Place is how much later than at time a a part begins in a mix. source is the
// part's whole sound and from the place in it that should be heard at a; the
// stretch a..b of the mix, with the other parts already taken out, is compared.
// The answer is exact to a sample within +-reach; score is the correlation
// there, from 0 to 1.
func Place(mix Sound, a, b time.Duration, source Sound, from, reach time.Duration) (late time.Duration, score float64) {
	const coarse = 6 // at 8 kHz the rough place is found 36 times as fast
	lags := Sample(reach)
	// The comparison reads beyond the stretch on both sides, in the mix alone.
	wide := mono(mix.Cut(a-reach, b+reach))
	want := mono(source.Cut(from, from+b-a))
	rough, _ := search(decimate(wide, coarse), decimate(want, coarse), 0, 2*lags/coarse)
	first := max(rough*coarse-2*coarse, 0)
	best, score := search(wide, want, first, min(rough*coarse+2*coarse, len(wide)-len(want)))
	return time.Duration(float64(best-lags) / Rate * float64(time.Second)), score
}

// search slides want along wide and returns where it fits best.
func search(wide, want []float64, first, last int) (best int, score float64) {
	var power float64
	for _, v := range want {
		power += v * v
	}
	best, score = first, math.Inf(-1)
	for lag := first; lag <= last && lag+len(want) <= len(wide); lag++ {
		var cross, here float64
		for i, v := range want {
			w := wide[lag+i]
			cross += v * w
			here += w * w
		}
		if s := cross / math.Sqrt(here*power+1e-12); s > score {
			best, score = lag, s
		}
	}
	return best, score
}

func mono(s Sound) []float64 {
	out := make([]float64, len(s.L))
	for i := range out {
		out[i] = (float64(s.L[i]) + float64(s.R[i])) / 2
	}
	return out
}

func decimate(v []float64, by int) []float64 {
	out := make([]float64, len(v)/by)
	for i := range out {
		for _, x := range v[i*by : (i+1)*by] {
			out[i] += x / float64(by)
		}
	}
	return out
}

// Without is the mix from a to b with known parts taken out, each of which has
// the length of that stretch. It keeps a margin around the stretch untouched so
// that Place can look beyond it.
func Without(mix Sound, a time.Duration, parts []Sound, gains []float64) Sound {
	out := mix.Cut(0, mix.Length())
	first := Sample(a)
	for i, p := range parts {
		for k := range p.L {
			if at := first + k; at >= 0 && at < len(out.L) {
				out.L[at] -= float32(gains[i]) * p.L[k]
				out.R[at] -= float32(gains[i]) * p.R[k]
			}
		}
	}
	return out
}
