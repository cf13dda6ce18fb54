package stems

import (
	"math"
	"math/bits"
)

// fft is a radix-2 transform of a fixed size, with its tables. Not for
// concurrent use of one data slice, but tables may be shared.
type fft struct {
	n       int
	twiddle []complex128 // e^(-2πik/n), k < n/2
	swap    []int
}

// newFFT makes a transform of n points; n is a power of two.
func newFFT(n int) *fft {
	f := &fft{n: n, twiddle: make([]complex128, n/2), swap: make([]int, n)}
	for k := range f.twiddle {
		sin, cos := math.Sincos(-2 * math.Pi * float64(k) / float64(n))
		f.twiddle[k] = complex(cos, sin)
	}
	shift := 64 - bits.Len(uint(n-1))
	for i := range f.swap {
		f.swap[i] = int(bits.Reverse64(uint64(i)) >> shift)
	}
	return f
}

// forward transforms data in place.
func (f *fft) forward(data []complex128) {
	for i, j := range f.swap {
		if i < j {
			data[i], data[j] = data[j], data[i]
		}
	}
	for size := 2; size <= f.n; size *= 2 {
		half, step := size/2, f.n/size
		for start := 0; start < f.n; start += size {
			lo, hi := data[start:start+half], data[start+half:start+size]
			for k := range lo {
				t := hi[k] * f.twiddle[k*step]
				hi[k] = lo[k] - t
				lo[k] += t
			}
		}
	}
}

// inverse transforms data in place, scaled by 1/n.
func (f *fft) inverse(data []complex128) {
	for i, v := range data {
		data[i] = complex(real(v), -imag(v))
	}
	f.forward(data)
	scale := 1 / float64(f.n)
	for i, v := range data {
		data[i] = complex(real(v)*scale, -imag(v)*scale)
	}
}

// hann is the periodic Hann window; with a hop of a quarter of n its squares
// add up to 3/2 everywhere.
func hann(n int) []float64 {
	w := make([]float64, n)
	for i := range w {
		w[i] = 0.5 - 0.5*math.Cos(2*math.Pi*float64(i)/float64(n))
	}
	return w
}
