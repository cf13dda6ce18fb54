// Package stems takes mixed audio apart: voice against background, and the
// voice by speaker. It is classical signal processing, not a trained model; it
// makes a demonstration make sense to the ear and gives tests stems with exact
// arithmetic: voice + background is the input and the speakers' sum is the
// voice, sample by sample, in 16-bit integers.
package stems

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// All audio in this package is interleaved stereo PCM of 16 bit at SampleRate.
const (
	SampleRate = 48000
	Channels   = 2
	frameBytes = 2 * Channels
)

// ErrNotAudio says that ffmpeg found nothing to decode.
var ErrNotAudio = errors.New("no decodable audio")

// Decode turns the first audio track of any file into raw PCM in rawPath and
// returns the number of sample frames. A file without audio is ErrNotAudio.
func Decode(ctx context.Context, path, rawPath string) (frames int64, err error) {
	args := []string{"-nostdin", "-hide_banner", "-loglevel", "error", "-i", "file:" + path, "-map", "0:a:0"}
	args = append(args, toStereo(ctx, path)...)
	args = append(args, "-ar", strconv.Itoa(SampleRate), "-f", "s16le", "-c:a", "pcm_s16le", "-y", "file:"+rawPath)
	cmd := exec.CommandContext(ctx, "ffmpeg", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return 0, fmt.Errorf("decode audio: %w", ctx.Err())
		}
		return 0, fmt.Errorf("%w: %s", ErrNotAudio, strings.TrimSpace(stderr.String()))
	}
	info, err := os.Stat(rawPath)
	if err != nil {
		return 0, fmt.Errorf("decode audio: %w", err)
	}
	if info.Size() < frameBytes {
		return 0, fmt.Errorf("%w: not one sample", ErrNotAudio)
	}
	return info.Size() / frameBytes, nil
}

// toStereo returns the options that bring the sound to two channels. Mono goes to
// both as loud as it is: ffmpeg's own way would make it 3 dB quieter.
func toStereo(ctx context.Context, path string) []string {
	out, err := exec.CommandContext(ctx, "ffprobe", "-loglevel", "error", "-select_streams", "a:0",
		"-show_entries", "stream=channels", "-of", "csv=p=0", "file:"+path).Output()
	if channels, _, _ := strings.Cut(string(out), "\n"); err == nil && strings.Trim(channels, " ,\r") == "1" {
		return []string{"-af", "pan=stereo|c0=c0|c1=c0"}
	}
	return []string{"-ac", strconv.Itoa(Channels)}
}

// Encode turns a WAV file into the format that outPath's extension names
// (mp3, m4a or flac).
func Encode(ctx context.Context, wavPath, outPath string) error {
	cmd := exec.CommandContext(ctx, "ffmpeg", "-nostdin", "-hide_banner", "-loglevel", "error",
		"-i", "file:"+wavPath, "-b:a", "192k", "-y", "file:"+outPath)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("encode %s: %w: %s", outPath, err, bytes.TrimSpace(out))
	}
	return nil
}

// pcm is audio on disk, read in blocks so that hours fit in little memory.
type pcm struct {
	file   *os.File
	offset int64 // of the first sample in the file, bytes
	frames int64
}

// wavHeaderBytes is the size of the header that createWAV writes.
const wavHeaderBytes = 44

// openPCM opens raw PCM (offset 0) or a WAV of createWAV (wavHeaderBytes).
func openPCM(path string, offset int64) (*pcm, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open PCM: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open PCM: %w", err), file.Close())
	}
	return &pcm{file: file, offset: offset, frames: (info.Size() - offset) / frameBytes}, nil
}

// read returns frames [from, from+count); positions outside the file are zero.
func (p *pcm) read(from, count int64) ([]int16, error) {
	out := make([]int16, count*Channels)
	first, last := max(from, 0), min(from+count, p.frames)
	if first >= last {
		return out, nil
	}
	raw := make([]byte, (last-first)*frameBytes)
	if _, err := p.file.ReadAt(raw, p.offset+first*frameBytes); err != nil {
		return nil, fmt.Errorf("read PCM: %w", err)
	}
	part := out[(first-from)*Channels:]
	for i := range len(raw) / 2 {
		part[i] = int16(binary.LittleEndian.Uint16(raw[2*i:]))
	}
	return out, nil
}

// wavWriter writes a WAV file whose length is known from the start.
type wavWriter struct {
	file *os.File
	buf  *bufio.Writer
}

func createWAV(path string, frames int64) (*wavWriter, error) {
	bytes := frames * frameBytes
	if bytes > 1<<32-64 {
		return nil, fmt.Errorf("create WAV: %d bytes of PCM do not fit", bytes)
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("create WAV: %w", err)
	}
	w := &wavWriter{file: file, buf: bufio.NewWriterSize(file, 1<<16)}
	header := make([]byte, 0, wavHeaderBytes)
	le := binary.LittleEndian
	header = le.AppendUint32(append(header, "RIFF"...), uint32(36+bytes))
	header = le.AppendUint32(append(header, "WAVEfmt "...), 16)
	header = le.AppendUint16(header, 1) // PCM
	header = le.AppendUint16(header, Channels)
	header = le.AppendUint32(header, SampleRate)
	header = le.AppendUint32(header, SampleRate*frameBytes)
	header = le.AppendUint16(header, frameBytes)
	header = le.AppendUint16(header, 16)
	header = le.AppendUint32(append(header, "data"...), uint32(bytes))
	if _, err := w.buf.Write(header); err != nil {
		return nil, errors.Join(fmt.Errorf("create WAV: %w", err), file.Close())
	}
	return w, nil
}

func (w *wavWriter) write(samples []int16) error {
	raw := make([]byte, 2*len(samples))
	for i, v := range samples {
		binary.LittleEndian.PutUint16(raw[2*i:], uint16(v))
	}
	if _, err := w.buf.Write(raw); err != nil {
		return fmt.Errorf("write WAV: %w", err)
	}
	return nil
}

func (w *wavWriter) close() error { return errors.Join(w.buf.Flush(), w.file.Close()) }

// part takes v out of x: it returns v as an integer and the rest, such that
// both fit 16 bits and their sum is x exactly.
func part(x int16, v float64) (taken, rest int16) {
	t := int32(math.Round(min(max(v, -32768), 32767)))
	r := min(max(int32(x)-t, -32768), 32767)
	// Where the rest had to be cut, what is taken moves towards x, and x is in
	// range: this cannot overflow.
	return int16(int32(x) - r), int16(r)
}
