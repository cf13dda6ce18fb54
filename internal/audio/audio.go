// Package audio works on sound as samples: it stretches, mixes and limits files
// of interleaved little-endian float32, stereo at 48 kHz. It knows nothing of
// containers, codecs, timelines and failures for clients.
package audio

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
)

const (
	// SampleRate is the rate of all sound, Hz.
	SampleRate = 48000
	// FrameBytes is the size of a stereo float32 frame in a file.
	FrameBytes = 8
)

// frame is one sample of each side, 1 being full scale.
type frame [2]float64

// pcmFile is a file of samples. Reading outside of what it holds yields silence,
// so that nobody has to care where a source ends.
type pcmFile struct {
	file   *os.File
	first  int64 // number of the first sample in the file
	length int64 // samples
	buffer []byte
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

// read fills dst with the samples from position at on.
func (p *pcmFile) read(dst []frame, at int64) error {
	clear(dst)
	at -= p.first
	skip := max(0, -at)
	n := min(int64(len(dst)), p.length-at) - skip
	if skip >= int64(len(dst)) || n <= 0 {
		return nil
	}
	if need := int(n * FrameBytes); cap(p.buffer) < need {
		p.buffer = make([]byte, need)
	}
	b := p.buffer[:n*FrameBytes]
	if _, err := p.file.ReadAt(b, (at+skip)*FrameBytes); err != nil && err != io.EOF {
		return fmt.Errorf("read samples: %w", err)
	}
	for i := range n {
		left := math.Float32frombits(binary.LittleEndian.Uint32(b[i*FrameBytes:]))
		right := math.Float32frombits(binary.LittleEndian.Uint32(b[i*FrameBytes+4:]))
		dst[skip+i] = frame{finite(left), finite(right)}
	}
	return nil
}

// finite replaces what a broken float file may hold: one NaN would silence the
// whole mix.
func finite(f float32) float64 {
	x := float64(f)
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}

func (p *pcmFile) close() { p.file.Close() }

// putFrame writes a frame as the file holds it.
func putFrame(b []byte, f frame) {
	binary.LittleEndian.PutUint32(b, math.Float32bits(float32(f[0])))
	binary.LittleEndian.PutUint32(b[4:], math.Float32bits(float32(f[1])))
}
