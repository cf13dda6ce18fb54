package audio

import (
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"cutroom/internal/mediatest"
)

// writePCM writes mono samples to both channels of a file.
func writePCM(t *testing.T, samples []float64) *pcmFile {
	t.Helper()
	var frames []frame
	for _, x := range samples {
		frames = append(frames, frame{x, x})
	}
	path := filepath.Join(t.TempDir(), "in.f32")
	writeFrames(t, path, frames)
	f, err := openPCM(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.close)
	return f
}

func stretched(t *testing.T, in *pcmFile, from, tempo float64, length int64) []float64 {
	t.Helper()
	path := filepath.Join(t.TempDir(), "out.f32")
	if err := newStretcher(in).run(t.Context(), Stretch{from, tempo, length}, path); err != nil {
		t.Fatal(err)
	}
	out, err := openPCM(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer out.close()
	if out.length != length {
		t.Fatalf("tempo %v: %d samples, want %d", tempo, out.length, length)
	}
	frames := make([]frame, length)
	if err := out.read(frames, 0); err != nil {
		t.Fatal(err)
	}
	mono := make([]float64, length)
	for i, f := range frames {
		mono[i] = f[0]
	}
	return mono
}

var tempos = []float64{0.1, 0.25, 0.5, 0.9, 1.1, 1.5, 3, 10}

// Bursts of a tone come out where the exact map puts them.
func TestStretchStaysOnTheMap(t *testing.T) {
	t.Parallel()
	for _, tempo := range tempos {
		length := int64(4 * SampleRate)
		src := make([]float64, int(float64(length)*tempo)+SampleRate)
		// Bursts last 100 ms in the output, two a second.
		var middles []float64
		burst := int(0.100 * SampleRate * tempo)
		for at := 0.3 * SampleRate * tempo; int(at)+burst < len(src)-SampleRate; at += 0.5 * SampleRate * tempo {
			for i := range burst {
				src[int(at)+i] = 0.5 * math.Sin(2*math.Pi*1000*float64(i)/SampleRate)
			}
			middles = append(middles, at+float64(burst)/2)
		}
		out := stretched(t, writePCM(t, src), 0, tempo, length)
		var worst, sum float64
		for _, m := range middles {
			want := m / tempo
			var energy, weighted float64
			reach := int(0.24 * SampleRate)
			for i := max(0, int(want)-reach); i < min(len(out), int(want)+reach); i++ {
				energy += out[i] * out[i]
				weighted += out[i] * out[i] * float64(i)
			}
			if energy == 0 {
				t.Errorf("tempo %v: the burst at %.2f s is lost", tempo, m/SampleRate)
				continue
			}
			off := (weighted/energy - want) / SampleRate * 1000
			worst, sum = max(worst, math.Abs(off)), sum+off
		}
		mean := sum / float64(len(middles))
		t.Logf("tempo %5.2f: off by %+.1f ms on average, %.1f ms at most", tempo, mean, worst)
		// Half of what a window may be moved by, in the source's time, and a little.
		if limit := 7 / min(tempo, 1); worst > limit {
			t.Errorf("tempo %v: off by %.1f ms at most, want <= %.1f", tempo, worst, limit)
		}
	}
}

// A sudden sound begins exactly where the map puts it, over silence and over other sound.
func TestStretchKeepsOnsets(t *testing.T) {
	t.Parallel()
	for _, background := range []float64{0, 0.02} {
		for _, tempo := range []float64{0.1, 0.25, 0.5, 0.9, 1.1, 1.5, 2, 4} {
			rng := rand.New(rand.NewPCG(1, 2))
			length := int64(4 * SampleRate)
			src := make([]float64, int(float64(length)*tempo)+SampleRate)
			for i := range src {
				src[i] = background * (rng.Float64()*2 - 1)
			}
			apart := int(max(0.3, 0.3*tempo) * SampleRate)
			var starts []int
			for at := apart / 2; at+apart < len(src)-SampleRate; at += apart {
				for i := range int(0.1 * SampleRate) {
					src[at+i] += 0.5 * math.Sin(2*math.Pi*1000*float64(i)/SampleRate)
				}
				starts = append(starts, at)
			}
			out := stretched(t, writePCM(t, src), 100, tempo, length)
			for _, at := range starts {
				want := int((float64(at) - 100) / tempo)
				const reach = SampleRate / 10
				if want < reach || want+reach > len(out) {
					continue
				}
				heard := want - reach
				for heard < want+reach && math.Abs(out[heard]) < 0.1 {
					heard++
				}
				if off := float64(heard-want) / SampleRate * 1000; math.Abs(off) > 1.5 {
					t.Errorf("tempo %v, background %v: the onset at %.2f s is heard %+.1f ms off", tempo, background, float64(at)/SampleRate, off)
				}
			}
		}
	}
}

// The seams at onsets are inaudible: no step between samples is larger than in the source.
func TestStretchHasNoSeams(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	src := make([]float64, 8*SampleRate)
	low := 0.0
	for i := range src {
		// A chord, and a burst of dull noise four times a second that dies away.
		for _, hz := range []float64{110, 164.8, 220} {
			src[i] += 0.04 * math.Sin(2*math.Pi*hz*float64(i)/SampleRate)
		}
		low += (rng.NormFloat64() - low) / 40
		src[i] += 4 * low * math.Exp(-float64(i%12000)/1500)
	}
	step := func(x []float64) (largest float64) {
		for i := 1; i < len(x); i++ {
			largest = max(largest, math.Abs(x[i]-x[i-1]))
		}
		return largest
	}
	in := writePCM(t, src)
	found, err := onsets(t.Context(), in, 0, int64(len(src)), stretchSection)
	if err != nil || len(found) < 16 {
		t.Fatalf("%d onsets found (%v), want most of the 32", len(found), err)
	}
	for _, tempo := range []float64{0.3, 0.5, 0.8, 1.3, 2} {
		out := stretched(t, in, 0, tempo, int64(6*SampleRate/max(1, tempo)))
		if got, want := step(out), 1.1*step(src); got > want {
			t.Errorf("tempo %v: the sound steps by %.3f, its source by %.3f", tempo, got, want/1.1)
		}
	}
}

func TestStretchKeepsPitchAndLevel(t *testing.T) {
	t.Parallel()
	for _, tempo := range tempos {
		length := int64(2 * SampleRate)
		src := make([]float64, int(float64(length)*tempo)+SampleRate)
		for i := range src {
			src[i] = 0.3*math.Sin(2*math.Pi*220*float64(i)/SampleRate) + 0.2*math.Sin(2*math.Pi*1318.5*float64(i)/SampleRate)
		}
		out := stretched(t, writePCM(t, src), 0, tempo, length)[SampleRate/4 : SampleRate*7/4]
		for hz, want := range map[float64]float64{220: 0.3, 1318.5: 0.2} {
			// No place suits two unrelated tones. The error detunes them by a hertz or two at the extremes, as with
			// ffmpeg's filter.
			var got float64
			for off := -2.5; off <= 2.5; off += 0.25 {
				got = max(got, mediatest.ToneAmplitude(out, hz+off))
			}
			if db := 20 * math.Log10(got/want); math.Abs(db) > 0.5 {
				t.Errorf("tempo %v: %v Hz changed by %.1f dB", tempo, hz, db)
			}
		}
		if db := power(out) - 10*math.Log10(0.3*0.3/2+0.2*0.2/2); math.Abs(db) > 0.5 {
			t.Errorf("tempo %v: the level changed by %.2f dB", tempo, db)
		}
	}
}

// power is the mean square of a signal, in dB.
func power(x []float64) float64 {
	var sum float64
	for _, v := range x {
		sum += v * v
	}
	return 10 * math.Log10(sum/float64(len(x)))
}

// noise is white noise, or soft noise such as wind, with a tenth of the bandwidth.
func noise(seed uint64, n int, soft bool) []float64 {
	random, x, low := rand.New(rand.NewPCG(seed, 1)), make([]float64, n), 0.0
	for i := range x {
		x[i] = 0.2 * random.NormFloat64()
		if soft {
			low += 0.1 * (x[i] - low)
			x[i] = low
		}
	}
	return x
}

// Noise never resembles itself, and still keeps its level, in short cuts too.
func TestStretchKeepsTheLevelOfNoise(t *testing.T) {
	t.Parallel()
	for _, soft := range []bool{false, true} {
		src := noise(1, 8*SampleRate, soft)
		in := writePCM(t, src)
		for _, tempo := range []float64{0.5, 0.75, 0.9, 1.1, 1.5, 2} {
			for _, cut := range []int64{SampleRate * 6 / 5, 3 * SampleRate} {
				from := SampleRate / 2
				out := stretched(t, in, float64(from), tempo, cut)
				want := power(src[from : from+int(float64(cut)*tempo)])
				if db := power(out) - want; math.Abs(db) > 0.5 {
					t.Errorf("tempo %v, %v samples, soft %v: the level changed by %.2f dB", tempo, cut, soft, db)
				}
			}
		}
	}
}

// Stems that add up to a sound add up to its level at another tempo too.
func TestStretchedStemsAddUp(t *testing.T) {
	t.Parallel()
	const length = 3 * SampleRate
	background := noise(2, 7*SampleRate, false)
	voice, whole := make([]float64, len(background)), make([]float64, len(background))
	for i := range voice {
		at := float64(i) / SampleRate
		syllable := max(0, math.Sin(2*math.Pi*3*at))
		voice[i] = 0.4 * syllable * (math.Sin(2*math.Pi*140*at) + 0.5*math.Sin(2*math.Pi*280*at) + 0.3*math.Sin(2*math.Pi*2100*at))
		whole[i] = voice[i] + background[i]
	}
	for _, tempo := range []float64{0.5, 0.8, 1.5, 2} {
		sum := stretched(t, writePCM(t, voice), 0, tempo, length)
		for i, x := range stretched(t, writePCM(t, background), 0, tempo, length) {
			sum[i] += x
		}
		if db := power(sum) - power(stretched(t, writePCM(t, whole), 0, tempo, length)); math.Abs(db) > 0.3 {
			t.Errorf("tempo %v: the stems differ from the whole by %.2f dB", tempo, db)
		}
	}
}

// At tempo 1 a stretch equals its source, and it begins with exactly the requested sample.
func TestStretchIsHonestAtItsStart(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	src := make([]float64, SampleRate)
	for i := range src {
		src[i] = rng.NormFloat64() / 8
	}
	in := writePCM(t, src)
	out := stretched(t, in, 1000, 1.0000001, 20000)
	for i, x := range out {
		if math.Abs(x-src[1000+i]) > 1e-6 {
			t.Fatalf("sample %d: %v, want %v", i, x, src[1000+i])
		}
	}
	for _, x := range stretched(t, in, 2*SampleRate, 0.5, 5000) {
		if x != 0 {
			t.Fatal("sound after the end of the source")
		}
	}
}
