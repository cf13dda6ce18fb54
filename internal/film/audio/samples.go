package audio

import (
	"encoding/binary"
	"math"
)

// portions splits writes of any length into whole frames of size bytes.
type portions struct {
	size int
	rest []byte // start of a frame whose end has not been written yet
}

// each calls f with the whole frames of p, preceded by what earlier writes left over.
func (w *portions) each(p []byte, f func([]byte)) (int, error) {
	n := len(p)
	if len(w.rest) > 0 {
		missing := min(w.size-len(w.rest), len(p))
		w.rest, p = append(w.rest, p[:missing]...), p[missing:]
		if len(w.rest) < w.size {
			return n, nil
		}
		f(w.rest)
	}
	whole := len(p) / w.size * w.size
	if whole > 0 {
		f(p[:whole])
	}
	w.rest = append(w.rest[:0], p[whole:]...)
	return n, nil
}

// float reads the first sample of b.
func float(b []byte) float64 { return sample(binary.LittleEndian.Uint32(b)) }

// PeakMeter is an io.Writer of float32 samples that remembers the highest absolute one. The zero value is ready to use.
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
