// Compares the loudness meter with ffmpeg's, for each kind of signal that a meter can get wrong.

package audio_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"cutroom/internal/film/audio"
)

// signal is a generated sound: the value of a channel at a time, in seconds.
type signal func(channel int, at float64) float64

// render returns the samples of a signal, interleaved as files hold them.
func (s signal) render(channels int, seconds float64) []byte {
	var b []byte
	for i := range int(seconds * audio.SampleRate) {
		for c := range channels {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(s(c, float64(i)/audio.SampleRate))))
		}
	}
	return b
}

func tone(hz, level float64) signal {
	return func(_ int, at float64) float64 { return level * math.Sin(2*math.Pi*hz*at) }
}

// noise is the same for equal seeds. The closer smooth is to 1, the less neighbouring samples differ.
func noise(seed uint64, level, smooth float64) signal {
	random, last := rand.New(rand.NewPCG(seed, 7)), [8]float64{}
	return func(c int, _ float64) float64 {
		last[c] = smooth*last[c] + (1-smooth)*level*(2*random.Float64()-1)
		return last[c]
	}
}

// gated plays a signal for a share of each period, in seconds, and other times its level for the rest.
func gated(s signal, period, share, other float64) signal {
	return func(c int, at float64) float64 {
		if math.Mod(at, period) < share*period {
			return s(c, at)
		}
		return other * s(c, at)
	}
}

type measured struct {
	name     string
	channels int
	samples  []byte
}

// loudnessSignals is one signal of each kind that a meter can get wrong.
func loudnessSignals() (all []measured) {
	add := func(channels int, seconds float64, name string, s signal) {
		all = append(all, measured{fmt.Sprintf("%d %s", len(all), name), channels, s.render(channels, seconds)})
	}
	for _, hz := range []float64{25, 60, 100, 440, 997, 1500, 3000, 6000, 10000, 12000.7, 15000} {
		add(1, 1, fmt.Sprint(hz, " Hz"), tone(hz, 0.5))
	}
	for _, level := range []float64{1, 0.1, 0.01, 0.001} {
		add(2, 1, fmt.Sprint("level ", level), tone(997, level))
		add(2, 1, fmt.Sprint("noise ", level), noise(3, level, 0))
	}
	for _, smooth := range []float64{0.5, 0.9, 0.99, 0.999} {
		add(2, 1, fmt.Sprint("smooth ", smooth), noise(4, 1, smooth))
	}
	for _, share := range []float64{0.1, 0.5} {
		add(2, 6, fmt.Sprint("pauses ", share), gated(tone(440, 0.3), 2, share, 0))
		add(2, 6, fmt.Sprint("softer for ", share), gated(noise(5, 0.5, 0.8), 2.3, share, 0.2))
		add(2, 6, fmt.Sprint("just above the gate for ", share), gated(tone(700, 0.5), 3, share, 0.33))
	}
	for i, hz := range []float64{12000, 6000, 8000} { // true peaks lie between samples
		add(2, 1, fmt.Sprint("between samples ", hz), func(_ int, at float64) float64 {
			return math.Sin(2*math.Pi*hz*at + math.Pi/4 + float64(i))
		})
	}
	add(2, 1, "square", func(_ int, at float64) float64 { return math.Copysign(0.7, math.Sin(2*math.Pi*150*at)) })
	add(2, 1, "clipped", func(c int, at float64) float64 { return max(-0.8, min(0.8, 2*math.Sin(2*math.Pi*330*at+float64(c)))) })
	add(2, 1, "over full scale", tone(440, 1.7))
	add(2, 1, "impulses", gated(func(int, float64) float64 { return 0.9 }, 0.25, 0.0001, 0))
	add(2, 1, "constant", func(int, float64) float64 { return 0.5 })
	add(2, 1, "chord", func(c int, at float64) float64 {
		return 0.2 * (tone(261.6, 1)(c, at) + tone(329.6, 1)(c, at) + tone(392, 1)(c, at)) * math.Exp(-math.Mod(at, 0.5)*4)
	})
	add(2, 1, "one side", func(c int, at float64) float64 { return float64(c) * tone(500, 0.4)(c, at) })
	add(2, 1, "out of phase", func(c int, at float64) float64 { return (1 - 2*float64(c)) * tone(500, 0.4)(c, at) })
	add(2, 5, "swell", func(c int, at float64) float64 { return tone(800, 0.9)(c, at) * at / 5 })
	for c := range 6 {
		add(6, 1, fmt.Sprint("5.1 channel ", c), func(channel int, at float64) float64 {
			if channel != c {
				return 0
			}
			return tone(600, 0.5)(c, at)
		})
	}
	add(2, 0.4, "one block", tone(997, 0.5))
	add(2, 0.45, "one block and a half", noise(6, 0.5, 0))
	return all
}

var ebur128 = regexp.MustCompile(`Parsed_ebur128_(\d+) @ [^\n]*Summary:\s+Integrated loudness:\s+I:\s+(\S+) LUFS[^@]*?Peak:\s+(\S+) dBFS`)

// The meter agrees with ffmpeg's.
func TestLoudnessAgreesWithFFmpeg(t *testing.T) {
	all, dir := loudnessSignals(), t.TempDir()
	var inputs, graph, outputs []string
	for i, s := range all {
		path := filepath.Join(dir, strconv.Itoa(i))
		if err := os.WriteFile(path, s.samples, 0o600); err != nil {
			t.Fatal(err)
		}
		inputs = append(inputs, "-f", "f32le", "-ar", "48000", "-ac", strconv.Itoa(s.channels), "-i", path)
		graph = append(graph, fmt.Sprintf("[%d]ebur128=peak=true:framelog=verbose[o%d]", i, i))
		outputs = append(outputs, "-map", fmt.Sprintf("[o%d]", i), "-f", "null", "-")
	}
	args := append(append([]string{"-hide_banner", "-nostdin"}, inputs...), "-filter_complex", strings.Join(graph, ";"))
	report, err := exec.CommandContext(t.Context(), "ffmpeg", append(args, outputs...)...).CombinedOutput()
	found := ebur128.FindAllStringSubmatch(string(report), -1)
	found = found[max(0, len(found)-len(all)):] // ffmpeg may set up its filters twice
	if err != nil || len(found) != len(all) || len(all) < 40 {
		t.Fatalf("%d summaries of %d signals: %v: %s", len(found), len(all), err, report)
	}
	for _, f := range found {
		i, _ := strconv.Atoi(f[1])
		s := all[i]
		m := audio.NewLoudnessMeter(s.channels)
		write(t, m, s.samples)
		integrated, ok := m.Integrated()
		if !ok {
			integrated = -70
		}
		near(t, s.name+": integrated loudness", integrated, f[2], 0.1)
		near(t, s.name+": true peak", 20*math.Log10(m.TruePeak()), f[3], 0.2)
	}
}

func near(t *testing.T, what string, got float64, want string, tolerance float64) {
	t.Helper()
	w, err := strconv.ParseFloat(want, 64)
	if err != nil || math.Abs(got-w) > tolerance+0.05 { // the report has one decimal
		t.Errorf("%s is %.2f, ffmpeg says %s (%v)", what, got, want, err)
	}
}

// write writes samples in portions that end anywhere in a frame.
func write(t *testing.T, w interface{ Write([]byte) (int, error) }, samples []byte) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	for len(samples) > 0 {
		n := min(len(samples), 1+random.IntN(30_000))
		if wrote, err := w.Write(samples[:n]); wrote != n || err != nil {
			t.Fatal(wrote, err)
		}
		samples = samples[n:]
	}
}

// Floating-point samples may lie far beyond full scale.
func TestLoudnessBeyondFullScale(t *testing.T) {
	for _, db := range []float64{0, 39.9, 40, 40.1, 80, 600} {
		m := audio.NewLoudnessMeter(2)
		write(t, m, tone(997, math.Pow(10, db/20)).render(2, 0.5))
		if l, ok := m.Integrated(); !ok || math.Abs(l-db) > 0.1 {
			t.Errorf("a tone of %v dB has the loudness %v, %v", db, l, ok)
		}
	}
}

func TestWhatHasNoLoudness(t *testing.T) {
	for name, samples := range map[string][]byte{
		"nothing": nil, "silence": make([]byte, 2*audio.SampleRate*audio.FrameBytes), "399 ms": tone(440, 0.5).render(2, 0.399),
		"below the absolute gate": tone(440, 0.0001).render(2, 2),
	} {
		m := audio.NewLoudnessMeter(2)
		write(t, m, samples)
		if l, ok := m.Integrated(); ok {
			t.Errorf("%s has the loudness %v", name, l)
		}
		if p := m.TruePeak(); (p > 0) != (name == "399 ms" || name == "below the absolute gate") {
			t.Errorf("%s: true peak %v", name, p)
		}
	}
}
