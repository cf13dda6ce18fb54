package audio

import "encoding/binary"

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
