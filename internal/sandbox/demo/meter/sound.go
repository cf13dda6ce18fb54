package meter

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Rate is the sample rate that sound is decoded at.
const Rate = 48000

// Sound is decoded stereo sound; both channels are equally long and 1 is full
// scale. Sample 0 is the file's time zero.
type Sound struct{ L, R []float32 }

// Decode decodes the first audio stream of a file. Sound that starts late is
// preceded by silence. Mono comes out on both channels.
func Decode(ctx context.Context, path string) (Sound, error) {
	channels, err := run(ctx, nil, "ffprobe", "-loglevel", "error", "-select_streams", "a:0",
		"-show_entries", "stream=channels", "-of", "csv=p=0", "file:"+path)
	if err != nil {
		return Sound{}, fmt.Errorf("decode %s: %w", path, err)
	}
	filters := "aresample=48000:first_pts=0"
	if first, _, _ := strings.Cut(string(channels), "\n"); strings.Trim(first, " ,\r") == "1" {
		filters += ",pan=stereo|c0=c0|c1=c0" // -ac alone would make mono 3 dB quieter
	}
	raw, err := run(ctx, nil, "ffmpeg", "-nostdin", "-hide_banner", "-loglevel", "error", "-i", "file:"+path,
		"-map", "0:a:0", "-af", filters, "-ac", "2", "-f", "f32le", "pipe:1")
	if err != nil {
		return Sound{}, fmt.Errorf("decode %s: %w", path, err)
	}
	n := len(raw) / 8
	s := Sound{L: make([]float32, n), R: make([]float32, n)}
	for i := range n {
		s.L[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[8*i:]))
		s.R[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[8*i+4:]))
	}
	return s, nil
}

// Length is how long the sound lasts.
func (s Sound) Length() time.Duration {
	return time.Duration(float64(len(s.L)) / Rate * float64(time.Second))
}

// Sample is the number of the sample at a time.
func Sample(d time.Duration) int { return int(math.Round(d.Seconds() * Rate)) }

// Cut is the sound from one time to another. What lies outside of s is silence,
// so the result always has the asked length.
func (s Sound) Cut(from, to time.Duration) Sound {
	first, n := Sample(from), max(Sample(to)-Sample(from), 0)
	out := Sound{L: make([]float32, n), R: make([]float32, n)}
	for i := range n {
		if at := first + i; at >= 0 && at < len(s.L) {
			out.L[i], out.R[i] = s.L[at], s.R[at]
		}
	}
	return out
}

// Level is the root mean square in dB of full scale; -inf for silence.
func (s Sound) Level() float64 {
	return 10 * math.Log10(dot(s, s)/float64(max(2*len(s.L), 1)))
}

// Peak is the largest magnitude of any sample.
func (s Sound) Peak() float64 {
	var peak float32
	for i := range s.L {
		peak = max(peak, s.L[i], -s.L[i], s.R[i], -s.R[i])
	}
	return float64(peak)
}

// Difference is the largest distance between two samples at the same place, and
// the level of the whole difference relative to a, in dB.
func Difference(a, b Sound) (largest, relative float64) {
	n := min(len(a.L), len(b.L))
	var sum, all float64
	for i := range n {
		for _, pair := range [2][2]float32{{a.L[i], b.L[i]}, {a.R[i], b.R[i]}} {
			d := float64(pair[0]) - float64(pair[1])
			largest = max(largest, math.Abs(d))
			sum += d * d
			all += float64(pair[0]) * float64(pair[0])
		}
	}
	return largest, 10 * math.Log10(sum/all)
}

// Sum adds two sounds; the result is as long as the shorter one.
func Sum(a, b Sound) Sound {
	n := min(len(a.L), len(b.L))
	out := Sound{L: make([]float32, n), R: make([]float32, n)}
	for i := range n {
		out.L[i], out.R[i] = a.L[i]+b.L[i], a.R[i]+b.R[i]
	}
	return out
}

func dot(a, b Sound) float64 {
	var sum float64
	for i := range min(len(a.L), len(b.L)) {
		sum += float64(a.L[i])*float64(b.L[i]) + float64(a.R[i])*float64(b.R[i])
	}
	return sum
}

// Silence is what Loudness answers for a sound that is too quiet to measure.
const Silence = -70.0

var integrated = regexp.MustCompile(`I:\s+(-?[0-9.]+|-?inf) LUFS`)

// Loudness is the integrated loudness by EBU R 128, in LUFS. The sound must be
// longer than 400 ms.
func Loudness(ctx context.Context, s Sound) (float64, error) {
	raw := make([]byte, 0, 8*len(s.L))
	for i := range s.L {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(s.L[i]))
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(s.R[i]))
	}
	// The summary is printed as information, on stderr.
	cmd := exec.CommandContext(ctx, "ffmpeg", "-hide_banner", "-nostats", "-f", "f32le", "-ar", strconv.Itoa(Rate), "-ac", "2",
		"-i", "pipe:0", "-af", "ebur128=framelog=verbose", "-f", "null", "-")
	cmd.Stdin = bytes.NewReader(raw)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("measure loudness: %w: %s", err, bytes.TrimSpace(out[max(len(out)-500, 0):]))
	}
	all := integrated.FindAllSubmatch(out, -1)
	if len(all) == 0 {
		return 0, fmt.Errorf("measure loudness: ffmpeg printed no summary: %s", bytes.TrimSpace(out[max(len(out)-500, 0):]))
	}
	v, err := strconv.ParseFloat(string(all[len(all)-1][1]), 64)
	if err != nil {
		return 0, fmt.Errorf("measure loudness: %w", err)
	}
	return max(v, Silence), nil
}
