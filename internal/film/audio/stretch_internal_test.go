// Stretched sound: places by the exact map, onsets, seams, pitch, level, and sums of stems.

package audio

import (
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sort"
	"testing"

	"cutroom/internal/testkit/mediatest"
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
	if err := newStretcher(in).run(t.Context(), Stretch{From: from, Tempo: tempo, Length: length}, path); err != nil {
		t.Fatal(err)
	}
	return readPCM(t, path, length)
}

// readPCM reads the left channel of a file.
func readPCM(t *testing.T, path string, length int64) []float64 {
	t.Helper()
	out, err := openPCM(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer out.close()
	if out.length != length {
		t.Fatalf("%d samples, want %d", out.length, length)
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

// testPace speeds up and slows down again and again. It is not exact: the map is integrated in small steps.
type testPace struct{ source, tempo []float64 } // every millisecond of the output

func newTestPace(slow, fast, period, length float64) testPace {
	var p testPace
	at := 0.0
	for ms := range int(length * 1000) {
		v := slow * math.Pow(fast/slow, 0.5-0.5*math.Cos(2*math.Pi*float64(ms)/1000/period))
		p.source, p.tempo = append(p.source, at), append(p.tempo, v)
		at += v / 1000
	}
	return p
}

func (p testPace) At(output float64) (source, tempo float64) {
	n := max(0, min(len(p.source)-1, int(output*1000)))
	return p.source[n] + (output-float64(n)/1000)*p.tempo[n], p.tempo[n]
}

func (p testPace) FilmTime(source float64) float64 {
	n := max(0, sort.SearchFloat64s(p.source, source)-1)
	return float64(n)/1000 + (source-p.source[n])/p.tempo[n]
}

// The middle of a tone comes out where a map with a changing tempo puts it.
func TestStretchFollowsAChangingTempo(t *testing.T) {
	t.Parallel()
	for _, speeds := range [][2]float64{{0.5, 2}, {0.25, 4}, {0.1, 0.5}, {1, 10}, {0.8, 1.2}} {
		pace := newTestPace(speeds[0], speeds[1], 3.3, 12)
		const length = 10 * SampleRate
		src := make([]float64, int(pace.source[len(pace.source)-1]*SampleRate)+SampleRate)
		var tones [][2]float64 // in output seconds
		for from := 0.15; from < pace.source[9000]; {
			begin := pace.FilmTime(from)
			to := max(from+0.1, pace.source[int(begin*1000)+40]) // a window is hardly longer
			end := pace.FilmTime(to)
			for i := int(from * SampleRate); i < int(to*SampleRate); i++ {
				src[i] = 0.5 * math.Sin(2*math.Pi*700*float64(i)/SampleRate)
			}
			tones = append(tones, [2]float64{begin, end})
			from = max(to+0.1, pace.source[min(9000, int((end+0.4)*1000))])
		}
		path := filepath.Join(t.TempDir(), "out.f32")
		if err := newStretcher(writePCM(t, src)).run(t.Context(), Stretch{Tempo: 1, Pace: pace, Length: length}, path); err != nil {
			t.Fatal(err)
		}
		out := readPCM(t, path, length)
		worst := 0.0
		for _, tone := range tones {
			first, last := -1, 0
			for i := max(0, int((tone[0]-0.12)*SampleRate)); i < int((tone[1]+0.12)*SampleRate); i++ {
				if math.Abs(out[i]) > 0.1 {
					if first < 0 {
						first = i
					}
					last = i
				}
			}
			off := float64(first+last)/2/SampleRate - (tone[0]+tone[1])/2
			if first < 0 || math.Abs(off) > 0.005 {
				t.Errorf("tempo %v: the tone from %.3f to %.3f s is heard from %.3f to %.3f", speeds, tone[0], tone[1],
					float64(first)/SampleRate, float64(last)/SampleRate)
			}
			worst = max(worst, math.Abs(off))
		}
		t.Logf("tempo %v: off by %.1f ms at most", speeds, worst*1000)
	}
}

// Backwards, the samples are the same ones, and stretching them equals stretching a source that was reversed before.
func TestStretchBackwards(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	src := make([]float64, 2*SampleRate)
	for i := range src {
		src[i] = float64(float32(rng.Float64() - 0.5))
	}
	turned := slices.Clone(src[:SampleRate+1])
	slices.Reverse(turned)
	run := func(in *pcmFile, s Stretch) []float64 {
		path := filepath.Join(t.TempDir(), "out.f32")
		in.backwards, in.last = s.Backwards, s.Last
		if err := newStretcher(in).run(t.Context(), s, path); err != nil {
			t.Fatal(err)
		}
		return readPCM(t, path, s.Length)
	}
	for _, tempo := range []float64{1, 0.7} {
		want := run(writePCM(t, append(turned, make([]float64, SampleRate)...)), Stretch{From: 3000, Tempo: tempo, Length: 30000})
		got := run(writePCM(t, src), Stretch{From: 3000, Tempo: tempo, Length: 30000, Backwards: true, Last: SampleRate})
		if !slices.Equal(got, want) {
			t.Errorf("tempo %v: other samples", tempo)
		}
		if tempo == 1 && !slices.Equal(got, turned[3000:33000]) {
			t.Error("not the samples backwards")
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
	found, err := onsets(t.Context(), in, 0, int64(len(src)), func(int64) int64 { return stretchSection }, false)
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
