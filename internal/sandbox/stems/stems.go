// Package stems separates mixed audio into voice and background, and the voice by speaker. It uses ffmpeg's filters,
// not a trained model. That is enough to make a demonstration plausible, and gives tests stems with exact arithmetic:
// voice + background is the input, and the speakers' sum is the voice, sample by sample, in 16-bit integers.
package stems

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"cutroom/internal/sandbox/process"
)

// All audio in this package is 16-bit interleaved stereo PCM at SampleRate.
const (
	SampleRate = 48000
	Channels   = 2
	frameBytes = 2 * Channels // of a frame: one sample per channel
)

// MaxSpeakers bounds Options.Speakers.
const MaxSpeakers = 20

// SpeakersFound in Options.Speakers lets the audio decide.
const SpeakersFound = -1

// Options chooses how Split works.
type Options struct {
	// Fast splits by frequency instead of detecting a voice. Everything above 600 Hz is voice, and each speaker has an
	// equal part of its time. A test can then trace a tone.
	Fast bool
	// Speakers is the number of per-speaker tracks: 0..MaxSpeakers, or SpeakersFound. Fast finds two.
	Speakers int
}

// Result names the WAV files that Split wrote. All are as long as the input.
type Result struct {
	Voice      string
	Background string
	Speakers   []string // in order of first appearance; their sum is Voice
}

// The filters that extract the voice from a mix. Both have linear phase. Their delay of half the taps is cut off at the
// front.
const (
	highTones = "firequalizer=gain='if(gte(f,600),0,-200)':delay=0.05:wfunc=nuttall"
	// Dialogue is in the centre of the stereo image, in the band of speech.
	middle = "pan=stereo|c0=.5*c0+.5*c1|c1=.5*c0+.5*c1,firequalizer=gain='if(between(f,120,7500),0,-200)':delay=0.05:wfunc=nuttall"
)

// shortest is the minimum number of frames to analyse. For fewer frames a resampler outputs nothing, and ffmpeg 7 then
// fails.
const shortest = SampleRate / 10

// Split separates the raw PCM of Decode and writes voice.wav, background.wav and speaker_<n>.wav into dir.
func Split(ctx context.Context, rawPath, dir string, opts Options) (_ Result, err error) {
	n := opts.Speakers
	if n < SpeakersFound || n > MaxSpeakers {
		return Result{}, fmt.Errorf("split: %d speakers", n)
	}
	info, err := os.Stat(rawPath)
	if err != nil {
		return Result{}, fmt.Errorf("split: %w", err)
	}
	frames := info.Size() / frameBytes
	filter := middle
	if opts.Fast {
		filter = highTones
	}
	estimate, mono := filepath.Join(dir, "estimate.pcm"), filepath.Join(dir, "mono.pcm")
	defer func() { err = errors.Join(err, os.RemoveAll(estimate), os.RemoveAll(mono)) }()
	err = process.FFmpeg(ctx, "-f", "s16le", "-ar", "48000", "-ac", "2", "-i", "file:"+rawPath,
		"-filter_complex", fmt.Sprintf("%s,atrim=start_sample=2400,asetpts=N/SR/TB,apad,asplit[v][m];"+
			"[v]atrim=end_sample=%d[voice];[m]atrim=end_sample=%d[mono]",
			filter, frames, max(frames, shortest)),
		"-map", "[voice]", "-f", "s16le", "file:"+estimate, "-map", "[mono]", "-ac", "1", "-ar", "8000", "-f", "s16le", "file:"+mono)
	if err != nil {
		return Result{}, fmt.Errorf("split: %w", err)
	}
	var turns []turn
	if opts.Fast {
		if n == SpeakersFound {
			n = 2
		}
		turns = equalTurns(frames, max(n, 1))
	} else if turns, n, err = listen(mono, n); err != nil {
		return Result{}, fmt.Errorf("split: %w", err)
	}
	result := Result{Voice: filepath.Join(dir, "voice.wav"), Background: filepath.Join(dir, "background.wav")}
	for i := range n {
		result.Speakers = append(result.Speakers, filepath.Join(dir, fmt.Sprintf("speaker_%d.wav", i)))
	}
	if err := result.write(ctx, rawPath, estimate, frames, turns); err != nil {
		return Result{}, fmt.Errorf("split: %w", err)
	}
	return result, nil
}

// write writes all tracks. The voice is the estimated voice during the speakers' turns; the background is the rest of
// the input.
func (r Result) write(ctx context.Context, rawPath, estimatePath string, frames int64, turns []turn) (err error) {
	var in [2]*bufio.Reader
	for i, path := range []string{rawPath, estimatePath} {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		in[i] = bufio.NewReader(file)
	}
	paths := append([]string{r.Voice, r.Background}, r.Speakers...)
	files := make([]*os.File, len(paths))
	for i, path := range paths {
		if files[i], err = createWAV(path, frames); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, files[i].Close()) }()
	}
	const block = SampleRate
	for first := int64(0); first < frames; first += block {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := Channels * min(block, frames-first)
		mix, estimate := make([]int16, n), make([]int16, n)
		if err := errors.Join(binary.Read(in[0], binary.LittleEndian, mix), binary.Read(in[1], binary.LittleEndian, estimate)); err != nil {
			return err
		}
		tracks := make([][]int16, len(files))
		for i := range tracks {
			tracks[i] = make([]int16, n)
		}
		for i, x := range mix {
			pos := first + int64(i)/Channels
			for len(turns) > 0 && pos >= turns[0].to {
				turns = turns[1:]
			}
			var voice int16
			if len(turns) > 0 {
				voice = part(x, float64(estimate[i])*turns[0].share(pos))
			}
			tracks[0][i], tracks[1][i] = voice, x-voice
			if voice != 0 && len(tracks) > 2 {
				tracks[2+turns[0].speaker][i] = voice
			}
		}
		for i, track := range tracks {
			if err := binary.Write(files[i], binary.LittleEndian, track); err != nil {
				return err
			}
		}
	}
	return nil
}

// part rounds v to an integer such that x - part fits into 16 bits.
func part(x int16, v float64) int16 {
	taken := int32(math.Round(min(max(v, math.MinInt16), math.MaxInt16)))
	return int16(min(max(taken, int32(x)-math.MaxInt16), int32(x)-math.MinInt16))
}

// createWAV starts a WAV file whose length is known from the start.
func createWAV(path string, frames int64) (*os.File, error) {
	size := frames * frameBytes
	if size > 1<<32-64 {
		return nil, fmt.Errorf("%d bytes of PCM do not fit a WAV file", size)
	}
	le := binary.LittleEndian
	header := append(le.AppendUint32([]byte("RIFF"), uint32(36+size)), "WAVEfmt "...)
	header = append(le.AppendUint32(header, 16), 1, 0, Channels, 0) // 1 is PCM
	header = le.AppendUint32(le.AppendUint32(header, SampleRate), SampleRate*frameBytes)
	header = append(append(header, frameBytes, 0, 16, 0), "data"...)
	header = le.AppendUint32(header, uint32(size))
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if _, err := file.Write(header); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Decode converts the first audio track of any file to raw PCM in rawPath and returns the number of sample frames. A
// file without audio is an error.
func Decode(ctx context.Context, path, rawPath string) (frames int64, err error) {
	file, err := process.Probe(ctx, path)
	toStereo := []string{"-ac", "2"}
	if file.First("audio").Channels == 1 {
		// On both sides at full level; ffmpeg's default would make it 3 dB quieter.
		toStereo = []string{"-af", "pan=stereo|c0=c0|c1=c0"}
	}
	if err == nil {
		args := append([]string{"-i", "file:" + path, "-map", "0:a:0"}, toStereo...)
		err = process.FFmpeg(ctx, append(args, "-ar", "48000", "-f", "s16le", "file:"+rawPath)...)
	}
	if err != nil {
		return 0, fmt.Errorf("decode audio: %w", err)
	}
	info, err := os.Stat(rawPath)
	if err == nil && info.Size() < frameBytes {
		err = fmt.Errorf("%s has no sample", path)
	}
	if err != nil {
		return 0, fmt.Errorf("decode audio: %w", err)
	}
	return info.Size() / frameBytes, nil
}

// Encode converts a WAV file to the format of outPath's extension (mp3, m4a or flac).
func Encode(ctx context.Context, wavPath, outPath string) error {
	if err := process.FFmpeg(ctx, "-i", "file:"+wavPath, "-b:a", "192k", "file:"+outPath); err != nil {
		return fmt.Errorf("encode %s: %w", outPath, err)
	}
	return nil
}
