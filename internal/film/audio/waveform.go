// Waveforms for drawing: the lowest and highest sample of each group, as sound arrives, and their stored form.

package audio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Waveform is a sound reduced for drawing: the lowest and the highest sample in each group of SamplesPerPair
// samples. The last group may be shorter.
type Waveform struct {
	SampleRate     int // Hz
	SamplesPerPair int
	Pairs          []int8 // lowest, highest, lowest, ...; -128 and 127 are full scale
}

// Limits on the number of pairs that clients may request.
const (
	MinPoints     = 100
	MaxPoints     = 4000
	DefaultPoints = 1000
)

// Len is the number of pairs.
func (w Waveform) Len() int { return len(w.Pairs) / 2 }

// Coarser returns the waveform with at most that many pairs, each of which covers the same number of pairs of w.
func (w Waveform) Coarser(pairs int) Waveform {
	group := (w.Len() + pairs - 1) / pairs
	if group <= 1 {
		return w
	}
	out := Waveform{SampleRate: w.SampleRate, SamplesPerPair: w.SamplesPerPair * group}
	for at := 0; at < len(w.Pairs); at += 2 * group {
		low, high := w.Pairs[at], w.Pairs[at+1]
		for i := at + 2; i < min(at+2*group, len(w.Pairs)); i += 2 {
			low, high = min(low, w.Pairs[i]), max(high, w.Pairs[i+1])
		}
		out.Pairs = append(out.Pairs, low, high)
	}
	return out
}

// The stored form is the binary form of the public audiowaveform format, version 2: six 32-bit numbers,
// little-endian, followed by the pairs.
const (
	waveformVersion = 2
	eightBits       = 1   // the flag for pairs of 8 bits
	maxSampleRate   = 1e7 // Hz, above any real rate
)

// MarshalBinary returns the stored form.
func (w Waveform) MarshalBinary() ([]byte, error) {
	head := []uint32{waveformVersion, eightBits, uint32(w.SampleRate), uint32(w.SamplesPerPair), uint32(w.Len()), 1}
	b, err := binary.Append(nil, binary.LittleEndian, head)
	if err != nil {
		return nil, err
	}
	return binary.Append(b, binary.LittleEndian, w.Pairs)
}

var errNoWaveform = errors.New("not a stored waveform")

// UnmarshalBinary parses the stored form.
func (w *Waveform) UnmarshalBinary(b []byte) error {
	var head [6]uint32
	n, err := binary.Decode(b, binary.LittleEndian, &head)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoWaveform, err)
	}
	b = b[n:]
	if head[0] != waveformVersion || head[1] != eightBits || head[2] == 0 || head[2] > maxSampleRate || head[3] == 0 ||
		head[3] > math.MaxInt32 || head[5] != 1 || len(b) == 0 || uint64(len(b)) != 2*uint64(head[4]) {
		return fmt.Errorf("%w: %d bytes with header %v", errNoWaveform, len(b), head)
	}
	*w = Waveform{SampleRate: int(head[2]), SamplesPerPair: int(head[3]), Pairs: make([]int8, len(b))}
	_, err = binary.Decode(b, binary.LittleEndian, w.Pairs)
	return err
}

// maxPairs is the maximum number of pairs of a drawn waveform. A waveform has at least half as many, unless the
// sound has fewer samples.
const maxPairs = 1 << 16

// WaveformDrawer is an io.Writer of interleaved little-endian samples that draws their waveform. Its memory is
// constant. It draws the mean of all channels, as audiowaveform does.
type WaveformDrawer struct {
	wave        Waveform
	channels    int
	sampleBytes int
	sample      func(b []byte) int // the 16-bit sample at the start of b

	portions  portions
	low, high int // of the samples since the last pair
	count     int // of these samples
}

// NewWaveformDrawer returns a drawer of 16-bit samples at this rate, in Hz.
func NewWaveformDrawer(sampleRate, channels int) *WaveformDrawer {
	return newDrawer(sampleRate, channels, 2, func(b []byte) int { return int(int16(binary.LittleEndian.Uint16(b))) })
}

// NewFloatWaveformDrawer is NewWaveformDrawer for float32 samples.
func NewFloatWaveformDrawer(sampleRate, channels int) *WaveformDrawer {
	return newDrawer(sampleRate, channels, 4, func(b []byte) int {
		return int(max(math.MinInt16, min(math.MaxInt16, math.Round(float(b)*-math.MinInt16))))
	})
}

func newDrawer(sampleRate, channels, sampleBytes int, sample func([]byte) int) *WaveformDrawer {
	return &WaveformDrawer{wave: Waveform{SampleRate: sampleRate, SamplesPerPair: 2}, channels: channels,
		sampleBytes: sampleBytes, sample: sample, portions: portions{size: sampleBytes * channels}}
}

// Write accepts samples in portions of any length.
func (d *WaveformDrawer) Write(p []byte) (int, error) { return d.portions.each(p, d.frames) }

func (d *WaveformDrawer) frames(p []byte) {
	size := d.portions.size
	for len(p) > 0 {
		n := min(len(p)/size, d.wave.SamplesPerPair-d.count)
		low, high := d.low, d.high
		if d.count == 0 {
			low, high = math.MaxInt16, math.MinInt16
		}
		for part := p[:n*size]; len(part) >= size; part = part[size:] {
			sum := 0
			for c := 0; c < size; c += d.sampleBytes {
				sum += d.sample(part[c:])
			}
			sum /= d.channels
			low, high = min(low, sum), max(high, sum)
		}
		d.low, d.high, d.count, p = low, high, d.count+n, p[n*size:]
		if d.count == d.wave.SamplesPerPair {
			d.pair()
		}
	}
}

// pair completes a pair. If there are too many, it merges every two into one.
func (d *WaveformDrawer) pair() {
	d.wave.Pairs = append(d.wave.Pairs, int8(d.low/256), int8(d.high/256))
	d.count = 0
	if d.wave.Len() == maxPairs {
		d.wave = d.wave.Coarser(maxPairs / 2)
	}
}

// Waveform returns the waveform. Do not call Write afterwards.
func (d *WaveformDrawer) Waveform() Waveform {
	if d.count > 0 {
		d.pair()
	}
	return d.wave
}
