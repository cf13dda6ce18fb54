// Package sound makes the demonstration's sound: music with chords, bass,
// drums and a melody, a dialogue of two synthetic voices, and ticks that mark
// every whole second so that a film can be measured against its pictures.
//
// The music is a pure function: the same notes are the same samples on every
// run. The voices come from espeak-ng.
package sound

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"time"
)

// Rate is the sample rate of everything in this package.
const Rate = 48000

// Wave is stereo sound; both channels are equally long and 1 is full scale.
type Wave struct{ L, R []float64 }

// NewWave makes silence.
func NewWave(d time.Duration) *Wave {
	n := Samples(d)
	return &Wave{L: make([]float64, n), R: make([]float64, n)}
}

// Samples is the number of samples in a span, rounded to the nearest.
func Samples(d time.Duration) int { return int(math.Round(d.Seconds() * Rate)) }

// Len is the number of samples a channel.
func (w *Wave) Len() int { return len(w.L) }

// Add mixes other into w from the sample at on, scaled; what does not fit is
// left out.
func (w *Wave) Add(other *Wave, at int, gain float64) {
	for i := range other.L {
		if n := at + i; n >= 0 && n < len(w.L) {
			w.L[n] += other.L[i] * gain
			w.R[n] += other.R[i] * gain
		}
	}
}

// AddMono mixes a mono sound into w; pan goes from -1 (left) over 0 to 1.
func (w *Wave) AddMono(samples []float64, at int, gain, pan float64) {
	// Constant power, so that a sound is as loud at the side as in the middle.
	left, right := math.Cos((pan+1)*math.Pi/4)*math.Sqrt2*gain, math.Sin((pan+1)*math.Pi/4)*math.Sqrt2*gain
	for i, v := range samples {
		if n := at + i; n >= 0 && n < len(w.L) {
			w.L[n] += v * left
			w.R[n] += v * right
		}
	}
}

// Scale makes w louder or quieter.
func (w *Wave) Scale(gain float64) {
	for i := range w.L {
		w.L[i] *= gain
		w.R[i] *= gain
	}
}

// Peak is the largest magnitude of any sample.
func (w *Wave) Peak() float64 {
	var peak float64
	for i := range w.L {
		peak = max(peak, math.Abs(w.L[i]), math.Abs(w.R[i]))
	}
	return peak
}

// RMS is the root mean square over both channels.
func (w *Wave) RMS() float64 {
	var sum float64
	for i := range w.L {
		sum += w.L[i]*w.L[i] + w.R[i]*w.R[i]
	}
	return math.Sqrt(sum / float64(max(2*len(w.L), 1)))
}

// SetRMS scales w to a root mean square.
func (w *Wave) SetRMS(level float64) {
	if now := w.RMS(); now > 0 {
		w.Scale(level / now)
	}
}

// FadeOut lets the last stretch of w fall to silence.
func (w *Wave) FadeOut(d time.Duration) {
	n := min(Samples(d), w.Len())
	for i := range n {
		gain := 0.5 + 0.5*math.Cos(math.Pi*float64(i+1)/float64(n))
		w.L[w.Len()-n+i] *= gain
		w.R[w.Len()-n+i] *= gain
	}
}

// WriteWAV writes w as a WAV file of 16 bits. Samples beyond full scale are an
// error: they would be cut.
func (w *Wave) WriteWAV(path string) (err error) {
	if peak := w.Peak(); peak > 1 {
		return fmt.Errorf("write %s: the sound is too loud (peak %.2f)", path, peak)
	}
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write sound: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	out := bufio.NewWriterSize(file, 1<<16)
	le := binary.LittleEndian
	size := uint32(4 * w.Len())
	header := le.AppendUint32([]byte("RIFF"), 36+size)
	header = le.AppendUint32(append(header, "WAVEfmt "...), 16)
	header = le.AppendUint16(header, 1) // PCM
	header = le.AppendUint16(header, 2)
	header = le.AppendUint32(header, Rate)
	header = le.AppendUint32(header, Rate*4)
	header = le.AppendUint16(header, 4)
	header = le.AppendUint16(header, 16)
	header = le.AppendUint32(append(header, "data"...), size)
	if _, err := out.Write(header); err != nil {
		return fmt.Errorf("write sound: %w", err)
	}
	var frame [4]byte
	for i := range w.L {
		le.PutUint16(frame[:], uint16(int16(math.Round(w.L[i]*32767))))
		le.PutUint16(frame[2:], uint16(int16(math.Round(w.R[i]*32767))))
		if _, err := out.Write(frame[:]); err != nil {
			return fmt.Errorf("write sound: %w", err)
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write sound: %w", err)
	}
	return nil
}

// noise is a deterministic source of white noise between -1 and 1.
type noise uint64

func (n *noise) next() float64 {
	*n += 0x9e3779b97f4a7c15
	v := uint64(*n)
	v = (v ^ v>>30) * 0xbf58476d1ce4e5b9
	v = (v ^ v>>27) * 0x94d049bb133111eb
	v ^= v >> 31
	return float64(int64(v)) / (1 << 63)
}

// lowPass is a filter of one pole.
type lowPass struct{ a, y float64 }

func newLowPass(hz float64) lowPass { return lowPass{a: 1 - math.Exp(-2*math.Pi*hz/Rate)} }

func (f *lowPass) next(x float64) float64 {
	f.y += f.a * (x - f.y)
	return f.y
}
