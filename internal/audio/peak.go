package audio

import "math"

// PeakMeter is an io.Writer of float32 samples that remembers the highest absolute one. The zero value is ready
// to use.
type PeakMeter struct {
	peak     float64
	portions portions
}

// Peak returns the highest sample so far. 1 is full scale.
func (m *PeakMeter) Peak() float64 { return m.peak }

// Write accepts samples in portions of any length.
func (m *PeakMeter) Write(p []byte) (int, error) {
	m.portions.size = 4
	return m.portions.each(p, func(p []byte) {
		for ; len(p) > 0; p = p[4:] {
			m.peak = max(m.peak, math.Abs(float(p)))
		}
	})
}
