package demo

import (
	"context"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	"cutroom/internal/sandbox/measure"
	"cutroom/internal/sandbox/process"
)

// probe reads a file's headers and counts its video packets.
func probe(ctx context.Context, path string) (process.Media, error) {
	return process.Probe(ctx, path, "-count_packets")
}

// rateOf returns a stream's frame rate, or 30 if the stream does not state one.
func rateOf(s process.Stream) *big.Rat {
	if rate, ok := new(big.Rat).SetString(s.FrameRate); ok && rate.Sign() > 0 {
		return rate
	}
	return big.NewRat(30, 1)
}

const sampleRate = measure.SampleRate

// audio is decoded sound with left and right samples alternating; 1 is full scale. The first sample is the file's time
// zero.
type audio []float32

// decode decodes the first audio stream of a file, see stereo.
func decode(ctx context.Context, path string) (audio, error) { return stereo(ctx, "-i", "file:"+path) }

// stereo decodes the sound of an input of ffmpeg. Mono is returned on both channels.
func stereo(ctx context.Context, input ...string) (audio, error) {
	channels, err := measure.SoundOf(ctx, input...)
	if err == nil && len(channels) > 2 {
		channels, err = measure.SoundOf(ctx, append(input, "-ac", "2")...)
	}
	if err != nil {
		return nil, fmt.Errorf("decode sound: %w", err)
	}
	s := make(audio, 2*len(channels[0]))
	for i := range s {
		s[i] = float32(channels[i%len(channels)][i/2])
	}
	return s, nil
}

// at returns the index of the left sample at a time.
func at(d time.Duration) int { return 2 * int(math.Round(d.Seconds()*sampleRate)) }

func (s audio) length() time.Duration {
	return time.Duration(float64(len(s)/2) / sampleRate * float64(time.Second))
}

// cut returns the sound from one time to another. Outside s it is silent, so the result always has the requested
// length.
func (s audio) cut(from, to time.Duration) audio {
	first := at(from)
	out := make(audio, max(at(to)-first, 0))
	if first < 0 {
		copy(out[min(-first, len(out)):], s)
	} else {
		copy(out, s[min(first, len(s)):])
	}
	return out
}

// level returns the root mean square in dB of full scale, -inf for silence.
func (s audio) level() float64 { return 10 * math.Log10(dot(s, s)/float64(max(len(s), 1))) }

func dot(a, b audio) float64 {
	var sum float64
	for i := range min(len(a), len(b)) {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

// plus adds sounds; the result is as long as the shortest.
func (s audio) plus(others ...audio) audio {
	out := append(audio{}, s...)
	for _, o := range others {
		out = out[:min(len(out), len(o))]
		for i := range out {
			out[i] += o[i]
		}
	}
	return out
}

// difference returns the largest distance between two samples at the same place, and the level of the whole difference
// relative to a, in dB.
func difference(a, b audio) (largest, relative float64) {
	var sum, all float64
	for i := range min(len(a), len(b)) {
		d := float64(a[i]) - float64(b[i])
		largest = max(largest, math.Abs(d))
		sum += d * d
		all += float64(a[i]) * float64(a[i])
	}
	return largest, 10 * math.Log10(sum/all)
}

// loudnessOf returns the integrated loudness of a file by EBU R 128, and the higher true peak of its channels in dB.
func loudnessOf(ctx context.Context, path string) (lufs, peak float64, err error) {
	raw, err := process.Output(ctx, "ffmpeg", "-nostdin", "-hide_banner", "-loglevel", "error", "-i", "file:"+path, "-map", "0:a:0",
		"-af", `ebur128=peak=true:metadata=1,ametadata=mode=print:file=-`, "-f", "null", "-")
	if err != nil {
		return 0, 0, err
	}
	last := map[string]float64{}
	for line := range strings.Lines(string(raw)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			last[key] = n
		}
	}
	highest := max(last["lavfi.r128.true_peaks_ch0"], last["lavfi.r128.true_peaks_ch1"])
	return last["lavfi.r128.I"], decibels(highest), nil
}
