package stems

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// speak renders a sentence by espeak-ng and decodes it.
func speak(t *testing.T, voice string, pitch string, text string) []int16 {
	t.Helper()
	path := filepath.Join(t.TempDir(), "speech.wav")
	if out, err := exec.Command("espeak-ng", "-v", voice, "-p", pitch, "-s", "150", "-w", path, text).CombinedOutput(); err != nil {
		t.Fatalf("espeak-ng: %v: %s", err, out)
	}
	return decode(t, path)
}

func decode(t *testing.T, path string) []int16 {
	t.Helper()
	raw := filepath.Join(t.TempDir(), "decoded.raw")
	if _, err := Decode(t.Context(), path, raw); err != nil {
		t.Fatal(err)
	}
	return readRaw(t, raw, 0)
}

func readRaw(t *testing.T, path string, offset int) []int16 {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data = data[offset:]
	out := make([]int16, len(data)/2)
	for i := range out {
		out[i] = int16(binary.LittleEndian.Uint16(data[2*i:]))
	}
	return out
}

func writeRaw(t *testing.T, samples []int16) string {
	t.Helper()
	data := make([]byte, 0, 2*len(samples))
	for _, v := range samples {
		data = binary.LittleEndian.AppendUint16(data, uint16(v))
	}
	path := filepath.Join(t.TempDir(), "in.raw")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// music plays four chords over bass, bass drum and hi-hat, in stereo.
func music(seconds float64) []int16 {
	n := int(seconds * SampleRate)
	out := make([]float64, n*Channels)
	rng := rand.New(rand.NewPCG(1, 2))
	chords := [][]float64{{220, 261.6, 329.6}, {174.6, 220, 261.6}, {261.6, 329.6, 392}, {196, 246.9, 293.7}}
	const beat = SampleRate / 2
	for start, b := 0, 0; start < n; start, b = start+beat, b+1 {
		chord := chords[b/4%4]
		note := func(hz, amp, pan, seconds float64, partials int) {
			for i := range min(int(seconds*SampleRate), n-start) {
				at := float64(i) / SampleRate
				var v float64
				for p := 1; p <= partials; p++ {
					v += math.Sin(2*math.Pi*hz*float64(p)*at) / float64(p*p)
				}
				v *= amp * math.Exp(-2.5*at) * math.Min(at*200, 1)
				out[2*(start+i)] += v * (1 - pan)
				out[2*(start+i)+1] += v * (1 + pan)
			}
		}
		for i, hz := range chord {
			note(hz, 1500, 0.6*float64(i-1), 1.2, 5)
		}
		note(chord[0]/2, 2500, 0, 0.5, 2)
		for i := range min(3000, n-start) { // bass drum
			v := 4000 * math.Exp(-float64(i)/900) * math.Sin(2*math.Pi*55*float64(i)/SampleRate)
			out[2*(start+i)] += v
			out[2*(start+i)+1] += v
		}
		for i := range min(2000, max(n-start-beat/2, 0)) { // hi-hat off the beat
			v := 900 * math.Exp(-float64(i)/300) * (rng.Float64()*2 - 1)
			out[2*(start+beat/2+i)] += v * 0.7
			out[2*(start+beat/2+i)+1] += v * 1.3
		}
	}
	return quantize(out)
}

func quantize(v []float64) []int16 {
	out := make([]int16, len(v))
	for i, x := range v {
		out[i] = int16(math.Round(min(max(x, -32768), 32767)))
	}
	return out
}

func silence(seconds float64) []int16 { return make([]int16, int(seconds*SampleRate)*Channels) }

func concat(parts ...[]int16) []int16 {
	var out []int16
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// mix adds b to a, as far as both go.
func mix(a, b []int16) []int16 {
	out := make([]float64, min(len(a), len(b)))
	for i := range out {
		out[i] = float64(a[i]) + float64(b[i])
	}
	return quantize(out)
}

func rms(v []int16) float64 {
	var sum float64
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	return math.Sqrt(sum / float64(max(len(v), 1)))
}

func scale(v []int16, level float64) []int16 {
	out := make([]float64, len(v))
	factor := level / rms(v)
	for i, x := range v {
		out[i] = float64(x) * factor
	}
	return quantize(out)
}

func correlation(a, b []int16) float64 {
	var ab, aa, bb float64
	for i := range min(len(a), len(b)) {
		x, y := float64(a[i]), float64(b[i])
		ab += x * y
		aa += x * x
		bb += y * y
	}
	return ab / math.Sqrt(aa*bb+1)
}

// distortion is how far signal stands above everything else in estimate, dB.
func distortion(estimate, signal []int16) float64 {
	c := correlation(estimate, signal)
	return 10 * math.Log10(c*c/(1-c*c))
}

// split runs Split and reads its files.
func split(t *testing.T, in []int16, opts Options) (voice, background []int16, speakers [][]int16) {
	t.Helper()
	result, err := Split(t.Context(), writeRaw(t, in), t.TempDir(), opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range result.Speakers {
		speakers = append(speakers, readRaw(t, path, wavHeaderBytes))
	}
	return readRaw(t, result.Voice, wavHeaderBytes), readRaw(t, result.Background, wavHeaderBytes), speakers
}
