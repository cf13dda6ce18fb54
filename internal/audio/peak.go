package audio

import (
	"encoding/binary"
	"math"
)

// PeakMeter is an io.Writer of float32 samples that remembers the highest one. The
// zero value is ready.
type PeakMeter struct {
	peak float64
	rest []byte
}

// Peak is the highest sample so far, 1 being full scale.
func (m *PeakMeter) Peak() float64 { return m.peak }

// Write takes samples in portions of any length.
func (m *PeakMeter) Write(p []byte) (int, error) {
	n := len(p)
	if len(m.rest) > 0 {
		p = append(m.rest, p...)
	}
	for ; len(p) >= 4; p = p[4:] {
		m.peak = max(m.peak, math.Abs(finite(math.Float32frombits(binary.LittleEndian.Uint32(p)))))
	}
	m.rest = append([]byte(nil), p...)
	return n, nil
}
