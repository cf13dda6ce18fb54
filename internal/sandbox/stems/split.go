package stems

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
)

// FastCutoffHz is where Options.Fast splits: what is above is voice, what is
// below is background.
const FastCutoffHz = 600

// MaxSpeakers bounds Options.Speakers.
const MaxSpeakers = 20

// SpeakersFound as Options.Speakers lets the audio decide.
const SpeakersFound = -1

// Options chooses how Split works.
type Options struct {
	// Fast splits by frequency instead of looking for a voice: tones above
	// FastCutoffHz are voice, and the voice is divided among its speakers by
	// FastSpeakerHz. Cheap, and a test can tell by a tone where it went.
	Fast bool
	// Speakers is the number of per-speaker tracks: 0..MaxSpeakers, or
	// SpeakersFound. Fast finds two.
	Speakers int
}

// Result names the WAV files that Split wrote. All are as long as the input.
type Result struct {
	Voice      string
	Background string
	Speakers   []string // in order of first appearance; their sum is Voice
	Frames     int64
}

// FastSpeakerHz is the upper edge of a speaker's band in Fast mode: 1500 Hz for
// the first, an octave more for each further one. The last speaker gets all
// that is left.
func FastSpeakerHz(speaker int) float64 { return 1500 * float64(int64(1)<<speaker) }

// Split takes the raw PCM of Decode apart and writes voice.wav, background.wav
// and speaker_<n>.wav into dir.
func Split(ctx context.Context, rawPath, dir string, opts Options) (_ Result, err error) {
	if opts.Speakers < SpeakersFound || opts.Speakers > MaxSpeakers {
		return Result{}, fmt.Errorf("split: %d speakers", opts.Speakers)
	}
	in, err := openPCM(rawPath, 0)
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = in.file.Close() }()
	result := Result{Frames: in.frames,
		Voice: filepath.Join(dir, "voice.wav"), Background: filepath.Join(dir, "background.wav")}

	var voiceMask masker = newVoiceMask(in)
	if opts.Fast {
		voiceMask = highPass(FastCutoffHz)
	}
	if err := divide(ctx, in, []masker{voiceMask}, []string{result.Voice, result.Background}); err != nil {
		return Result{}, fmt.Errorf("split voice and background: %w", err)
	}
	voice, err := openPCM(result.Voice, wavHeaderBytes)
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = voice.file.Close() }()
	if opts.Fast {
		result.Speakers, err = fastSpeakers(ctx, voice, dir, opts.Speakers)
	} else {
		result.Speakers, err = speakersByTime(ctx, voice, dir, opts.Speakers)
	}
	if err != nil {
		return Result{}, fmt.Errorf("split speakers: %w", err)
	}
	return result, nil
}

func speakerPaths(dir string, n int) []string {
	paths := make([]string, n)
	for i := range paths {
		paths[i] = filepath.Join(dir, fmt.Sprintf("speaker_%d.wav", i))
	}
	return paths
}

func fastSpeakers(ctx context.Context, voice *pcm, dir string, n int) ([]string, error) {
	if n == SpeakersFound {
		n = 2
	}
	if n == 0 {
		return nil, nil
	}
	paths := speakerPaths(dir, n)
	bands := make([]masker, 0, n)
	for i := range n - 1 {
		low := 0.0
		if i > 0 {
			low = FastSpeakerHz(i - 1)
		}
		bands = append(bands, bandPass(low, FastSpeakerHz(i)))
	}
	return paths, divide(ctx, voice, bands, paths)
}

// The transform that all spectral work shares.
const (
	window = 2048
	hop    = window / 4
	bins   = window/2 + 1
)

// masker decides how much of each frequency belongs to a part.
type masker interface {
	// masks returns, for count frames of the transform from the frame first,
	// the share of each bin, 0..1. Frames are asked for in ascending order.
	masks(ctx context.Context, first, count int64) ([][]float32, error)
}

// band is a masker that never changes.
type band []float32

func (b band) masks(_ context.Context, _, count int64) ([][]float32, error) {
	out := make([][]float32, count)
	for i := range out {
		out[i] = b
	}
	return out, nil
}

// bandPass passes [low, high) Hz.
func bandPass(low, high float64) band {
	b := make(band, bins)
	for k := range b {
		if hz := float64(k) * SampleRate / window; hz >= low && hz < high {
			b[k] = 1
		}
	}
	return b
}

func highPass(low float64) band { return bandPass(low, SampleRate) }

// blockFrames is how many transform frames are worked on at once: 20 s.
const blockFrames = 20 * SampleRate / hop

// frameStart is the position of a transform frame's first sample. The first
// frame ends with the first hop of the audio.
func frameStart(frame int64) int64 { return (frame+1)*hop - window }

// frameCount is the number of transform frames that touch the audio.
func frameCount(samples int64) int64 { return (samples + window - hop + hop - 1) / hop }

// divide writes len(parts)+1 WAV files that sum to in exactly: parts[i] goes to
// paths[i], what is left over to the last path.
func divide(ctx context.Context, in *pcm, parts []masker, paths []string) (err error) {
	out := make([]*wavWriter, len(paths))
	for i, path := range paths {
		if out[i], err = createWAV(path, in.frames); err != nil {
			break
		}
	}
	defer func() {
		for _, w := range out {
			if w != nil {
				err = errors.Join(err, w.close())
			}
		}
	}()
	if err != nil {
		return err
	}
	d := divider{in: in, transform: newFFT(window), shape: hann(window), sums: make([][]float64, len(parts))}
	for i := range d.sums {
		d.sums[i] = make([]float64, window*Channels)
	}
	total := frameCount(in.frames)
	for first := int64(0); first < total; first += blockFrames {
		count := min(blockFrames, total-first)
		shares := make([][][]float32, len(parts))
		for i, p := range parts {
			if shares[i], err = p.masks(ctx, first, count); err != nil {
				return err
			}
		}
		if err := d.block(ctx, first, count, shares, out); err != nil {
			return err
		}
	}
	return nil
}

// divider is the running state of divide: overlap-add sums, one per part.
type divider struct {
	in        *pcm
	transform *fft
	shape     []float64
	sums      [][]float64
}

// block transforms count frames, adds the masked parts up and writes what has
// become complete.
func (d *divider) block(ctx context.Context, first, count int64, shares [][][]float32, out []*wavWriter) error {
	start := frameStart(first)
	samples, err := d.in.read(start, count*hop+window)
	if err != nil {
		return err
	}
	spectrum := make([]complex128, window)
	masked := make([]complex128, window)
	for f := range count {
		if err := ctx.Err(); err != nil {
			return err
		}
		frame := samples[f*hop*Channels:][:window*Channels]
		load(frame, d.shape, spectrum)
		d.transform.forward(spectrum)
		for i := range shares {
			d.add(i, shares[i][f], spectrum, masked)
		}
		// The first hop of this frame is complete: nothing later touches it.
		if err := d.emit(start+f*hop, frame[:hop*Channels], out); err != nil {
			return err
		}
	}
	return nil
}

// load puts a windowed stereo frame into one complex signal, left as the real
// and right as the imaginary part. A mask that is real and the same for ±f
// then works on both channels at once.
func load(frame []int16, shape []float64, spectrum []complex128) {
	for i, w := range shape {
		spectrum[i] = complex(float64(frame[2*i])*w, float64(frame[2*i+1])*w)
	}
}

func (d *divider) add(i int, share []float32, spectrum, masked []complex128) {
	for k, m := range share {
		c := complex(float64(m), 0)
		masked[k] = spectrum[k] * c
		if k > 0 && k < window/2 {
			masked[window-k] = spectrum[window-k] * c
		}
	}
	d.transform.inverse(masked)
	sum := d.sums[i]
	for n, w := range d.shape {
		w /= 1.5 // the sum of the squared windows
		sum[2*n] += real(masked[n]) * w
		sum[2*n+1] += imag(masked[n]) * w
	}
}

// emit writes one hop at position pos and moves the sums on. Positions before
// the start and after the end of the audio are padding.
func (d *divider) emit(pos int64, original []int16, out []*wavWriter) error {
	rest := make([]int16, len(original))
	copy(rest, original)
	from, to := max(-pos, 0), min(d.in.frames-pos, hop)
	for i, sum := range d.sums {
		taken := make([]int16, len(rest))
		for n := range rest {
			taken[n], rest[n] = part(rest[n], sum[n])
		}
		if from < to {
			if err := out[i].write(taken[from*Channels : to*Channels]); err != nil {
				return err
			}
		}
		copy(sum, sum[hop*Channels:])
		clear(sum[len(sum)-hop*Channels:])
	}
	if from >= to {
		return nil
	}
	return out[len(out)-1].write(rest[from*Channels : to*Channels])
}
