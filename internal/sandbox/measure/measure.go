// Package measure decodes, measures and rotates films, for tests and for the demonstration. It runs ffmpeg directly,
// not through the service's code, so that a mistake there cannot affect both sides of a comparison.
package measure

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"

	"cutroom/internal/sandbox/process"
)

// SampleRate is the rate of all decoded sound, in Hz.
const SampleRate = 48000

// Sound decodes the first audio stream of a file to one slice per channel, with samples in -1..1.
func Sound(ctx context.Context, path string) ([][]float64, error) {
	// One thread: with several, ffmpeg 7.1 and later lose packets of FLAC and ALAC.
	return SoundOf(ctx, "-threads", "1", "-i", "file:"+path)
}

// SoundOf is Sound for any input of ffmpeg. The first sample is at time zero; zeros precede sound that starts later.
func SoundOf(ctx context.Context, input ...string) ([][]float64, error) {
	raw, err := ffmpeg(ctx, append(input, "-map", "0:a:0", "-af", "aresample=48000:first_pts=0",
		"-c:a", "pcm_f32le", "-f", "wav", "-bitexact", "-")...)
	if err != nil {
		return nil, err
	}
	data := bytes.Index(raw, []byte("data"))
	if data < 0 || len(raw) < data+8 {
		return nil, errors.New("no sound was decoded")
	}
	channels := int(binary.LittleEndian.Uint16(raw[22:]))
	raw = raw[data+8:]
	frames := len(raw) / 4 / channels
	all := make([][]float64, channels)
	for c := range all {
		all[c] = make([]float64, frames)
		for i := range all[c] {
			all[c][i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*(i*channels+c):])))
		}
	}
	return all, nil
}

// Pictures returns all pictures of a film after the filters, in a pixel format in which each has size bytes.
func Pictures(ctx context.Context, path, filters, format string, size int) ([][]byte, error) {
	raw, err := ffmpeg(ctx, "-i", "file:"+path, "-map", "0:v:0", "-vf", filters+",format="+format,
		"-fps_mode", "passthrough", "-f", "rawvideo", "-")
	if err != nil {
		return nil, err
	}
	if len(raw)%size != 0 {
		return nil, fmt.Errorf("%s: %d bytes are no pictures of %d", path, len(raw), size)
	}
	return slices.Collect(slices.Chunk(raw, size)), nil
}

func ffmpeg(ctx context.Context, args ...string) ([]byte, error) {
	return process.Output(ctx, "ffmpeg", append([]string{"-nostdin", "-hide_banner", "-loglevel", "error"}, args...)...)
}

// Flashes returns the first bright frame of every flash, given the brightness of all frames, 0..255. A frame ends a
// flash only if it is clearly darker than one that begins a flash, so that an encoder's flicker counts once.
func Flashes[T byte | float64](brightness []T) (starts []int) {
	const bright, dark = 150, 110
	lit := false
	for i, v := range brightness {
		if v > bright && !lit {
			starts, lit = append(starts, i), true
		} else if v < dark {
			lit = false
		}
	}
	return starts
}

// Turn copies an mp4 and gives its first track the display matrix a b c d (x' = ax + cy, y' = bx + dy), as phones do.
// It patches the track header, because ffmpeg cannot write mirrored matrices, and its option for other matrices differs
// between versions.
func Turn(from, to string, m [4]int32) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	at := bytes.Index(data, []byte("tkhd"))
	if at < 0 {
		return fmt.Errorf("%s has no track header", from)
	}
	at += 4 + 40 // in version 0, the matrix follows 40 bytes of header
	const one = 1 << 16
	for i, v := range []int32{m[0] * one, m[1] * one, 0, m[2] * one, m[3] * one, 0, 0, 0, 1 << 30} {
		binary.BigEndian.PutUint32(data[at+4*i:], uint32(v))
	}
	return os.WriteFile(to, data, 0o600)
}
