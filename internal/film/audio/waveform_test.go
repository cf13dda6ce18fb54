package audio

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

// expected is a waveform drawn the plain way.
func expected(samples []int16, channels, perPair int) (pairs []int8) {
	var means []int
	for at := 0; at < len(samples); at += channels {
		sum := 0
		for _, v := range samples[at : at+channels] {
			sum += int(v)
		}
		means = append(means, sum/channels)
	}
	for part := range slices.Chunk(means, perPair) {
		pairs = append(pairs, int8(slices.Min(part)/256), int8(slices.Max(part)/256))
	}
	return pairs
}

// For any length and any portions of bytes, each pair has exactly the extremes of its samples, at the resolution drawn
// and at each one derived from it.
func TestWaveformIsExactAtEveryResolution(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, frames := range []int{1, 2, 3, 1001, 2*maxPairs - 1, 2 * maxPairs, 2*maxPairs + 1, 5*maxPairs + 12345} {
		channels := 1 + frames%3
		samples := make([]int16, frames*channels)
		var bytes []byte
		for i := range samples {
			samples[i] = int16(random.Uint32())
			bytes = binary.LittleEndian.AppendUint16(bytes, uint16(samples[i]))
		}
		d := NewWaveformDrawer(44100, channels)
		for len(bytes) > 0 {
			n := min(len(bytes), 1+random.IntN(7001))
			if wrote, err := d.Write(bytes[:n]); wrote != n || err != nil {
				t.Fatal(wrote, err)
			}
			bytes = bytes[n:]
		}
		w := d.Waveform()
		if n := w.Len(); n > maxPairs || frames > 2*maxPairs && n < maxPairs/2 || w.SamplesPerPair*n < frames || w.SamplesPerPair*(n-1) >= frames {
			t.Errorf("%d frames: %d pairs of %d", frames, n, w.SamplesPerPair)
		}
		stored, err := w.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		var read Waveform
		if err := read.UnmarshalBinary(stored); err != nil {
			t.Fatal(err)
		}
		for _, points := range []int{maxPairs, 4000, 1000, 999, 100, 1} {
			c := read.Coarser(points)
			if c.Len() > points || c.SampleRate != 44100 || c.SamplesPerPair%w.SamplesPerPair != 0 ||
				!slices.Equal(c.Pairs, expected(samples, channels, c.SamplesPerPair)) {
				t.Errorf("%d frames of %d channels at %d points: %d pairs of %d, not those of the samples", frames, channels, points, c.Len(), c.SamplesPerPair)
			}
		}
	}
}

func TestStoredWaveformIsChecked(t *testing.T) {
	good, _ := Waveform{SampleRate: 48000, SamplesPerPair: 2, Pairs: []int8{-1, 1}}.MarshalBinary()
	for _, change := range []func(b []byte) []byte{
		func(b []byte) []byte { return nil },
		func(b []byte) []byte { return b[:24] },
		func(b []byte) []byte { return b[:25] },
		func(b []byte) []byte { return append(b, 0, 0) },
		func(b []byte) []byte { b[0] = 1; return b },
		func(b []byte) []byte { b[4] = 0; return b },
		func(b []byte) []byte { b[11] = 255; return b },
		func(b []byte) []byte { b[12] = 0; return b },
		func(b []byte) []byte { b[20] = 2; return b },
	} {
		if err := new(Waveform).UnmarshalBinary(change(slices.Clone(good))); err == nil {
			t.Errorf("%v was read", change(slices.Clone(good)))
		}
	}
}
