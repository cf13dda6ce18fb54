// Package audio processes sound as samples: it stretches, mixes and limits files of interleaved little-endian float32,
// stereo at 48 kHz. It does not handle containers, codecs or timelines, and its errors are not meant for clients.
package audio

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
)

const (
	// SampleRate is the rate of all sound, in Hz.
	SampleRate = 48000
	// FrameBytes is the size of a stereo float32 frame in a file, in bytes.
	FrameBytes = 8
)

// frame is one sample of each side. 1 is full scale.
type frame [2]float64

// pcmFile is a file of samples. Reads outside the file return silence, so callers need not know where a source
// ends.
type pcmFile struct {
	file   *os.File
	first  int64 // number of the first sample in the file
	length int64 // samples
	buffer []byte

	// backwards reverses the numbering: the sample numbered last becomes sample 0, and the numbers rise towards the
	// beginning of the file.
	backwards bool
	last      int64
}

func openPCM(path string, first int64) (*pcmFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open samples: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("open samples: %w", err)
	}
	return &pcmFile{file: f, first: first, length: st.Size() / FrameBytes}, nil
}

// read fills dst with the samples from position at.
func (p *pcmFile) read(dst []frame, at int64) error {
	if p.backwards {
		defer slices.Reverse(dst)
		at = p.last - at - int64(len(dst)) + 1
	}
	at -= p.first
	skip := max(0, -at)
	n := min(int64(len(dst)), p.length-at) - skip
	if skip >= int64(len(dst)) || n <= 0 {
		clear(dst)
		return nil
	}
	clear(dst[:skip])
	clear(dst[skip+n:])
	if need := int(n * FrameBytes); cap(p.buffer) < need {
		p.buffer = make([]byte, need)
	}
	b := p.buffer[:n*FrameBytes]
	if _, err := p.file.ReadAt(b, (at+skip)*FrameBytes); err != nil && err != io.EOF {
		return fmt.Errorf("read samples: %w", err)
	}
	for i := range dst[skip : skip+n] {
		bits := binary.LittleEndian.Uint64(b[i*FrameBytes:])
		dst[skip+int64(i)] = frame{sample(uint32(bits)), sample(uint32(bits >> 32))}
	}
	return nil
}

// sample converts float32 bits. NaN and infinity, which a broken file may contain, become 0: one NaN would silence the
// whole mix.
func sample(bits uint32) float64 {
	const exponent = 0xff << 23
	if bits&exponent == exponent {
		return 0
	}
	return float64(math.Float32frombits(bits))
}

func (p *pcmFile) close() { p.file.Close() }

// putFrame writes a frame in the format of the file.
func putFrame(b []byte, f frame) {
	binary.LittleEndian.PutUint32(b, math.Float32bits(float32(f[0])))
	binary.LittleEndian.PutUint32(b[4:], math.Float32bits(float32(f[1])))
}
