package meter

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"cutroom/internal/sandbox/demo/sound"
)

// makeMedia runs ffmpeg and returns the path of what it made.
func makeMedia(t *testing.T, name string, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	cmd := exec.CommandContext(t.Context(), "ffmpeg", append(append([]string{"-nostdin", "-hide_banner", "-loglevel", "error"}, args...), "-y", path)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("ffmpeg: %v: %s", err, out)
	}
	return path
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s is %.4f, want %.4f within %.4f", what, got, want, tolerance)
	}
}

func TestProbe(t *testing.T) {
	flat := makeMedia(t, "flat.mp4", "-f", "lavfi", "-t", "2", "-i", "testsrc2=s=320x180:r=30000/1001", "-f", "lavfi", "-t", "2", "-i", "sine=r=44100", "-preset", "ultrafast")
	m, err := Probe(t.Context(), flat)
	if err != nil {
		t.Fatal(err)
	}
	v := m.Video
	if v == nil || v.Width != 320 || v.Height != 180 || v.Rate.Cmp(big.NewRat(30000, 1001)) != 0 || v.Frames != 60 || v.Codec != "h264" {
		t.Errorf("video %+v", v)
	}
	if m.Audio == nil || m.Audio.SampleRate != 44100 || m.Audio.Channels != 1 || m.Audio.Codec != "aac" {
		t.Errorf("audio %+v", m.Audio)
	}
	if sound := makeMedia(t, "a.m4a", "-f", "lavfi", "-t", "1", "-i", "sine"); true {
		if m, err := Probe(t.Context(), sound); err != nil || m.Video != nil || m.Audio == nil {
			t.Errorf("sound alone: %+v, %v", m, err)
		}
	}
	text := filepath.Join(t.TempDir(), "text.mp4")
	if err := os.WriteFile(text, []byte("not a film"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Probe(t.Context(), text); err == nil {
		t.Error("text passes for a film")
	}
}

func TestIndexFirst(t *testing.T) {
	input := []string{"-f", "lavfi", "-t", "1", "-i", "testsrc2=s=64x64", "-preset", "ultrafast"}
	for _, tt := range []struct {
		args  []string
		first bool
	}{{[]string{"-movflags", "+faststart"}, true}, {nil, false}} {
		got, err := IndexFirst(makeMedia(t, "a.mp4", append(input[:len(input):len(input)], tt.args...)...))
		if err != nil || got != tt.first {
			t.Errorf("%v: %v, %v", tt.args, got, err)
		}
	}
	broken := filepath.Join(t.TempDir(), "broken.mp4")
	if err := os.WriteFile(broken, binary.BigEndian.AppendUint32(nil, 3), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := IndexFirst(broken); err == nil {
		t.Error("a broken file has an index")
	}
}

func TestLevelsOfASine(t *testing.T) {
	path := makeMedia(t, "a.wav", "-f", "lavfi", "-t", "3", "-i", "aevalsrc=exprs='0.25*sin(2*PI*1000*t)|0.25*sin(2*PI*1000*t)':s=48000:c=stereo")
	s, err := Decode(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if s.Length() != 3*time.Second {
		t.Errorf("length %v", s.Length())
	}
	near(t, "level", s.Level(), -15.05, 0.02)
	near(t, "peak", s.Peak(), 0.25, 0.001)
	// R 128: a stereo sine of 1 kHz has its peak's level as loudness.
	loud, err := Loudness(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "loudness", loud, -12.0, 0.15)
	half := s.Cut(0, 3*time.Second)
	for i := range half.L {
		half.L[i], half.R[i] = half.L[i]/2, half.R[i]/2
	}
	if quieter, err := Loudness(t.Context(), half); err != nil || math.Abs(loud-quieter-6.02) > 0.11 {
		t.Errorf("half as loud: %v after %v, %v", quieter, loud, err)
	}
	if silent, err := Loudness(t.Context(), s.Cut(5*time.Second, 6*time.Second)); err != nil || silent != Silence {
		t.Errorf("silence: %v, %v", silent, err)
	}
}

func TestLateSoundIsPrecededBySilence(t *testing.T) {
	path := makeMedia(t, "late.mp4", "-f", "lavfi", "-t", "2", "-i", "testsrc2=s=64x64", "-itsoffset", "0.7",
		"-f", "lavfi", "-t", "1", "-i", "sine=f=1000:r=48000", "-preset", "ultrafast", "-c:a", "flac", "-strict", "-2")
	s, err := Decode(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if before := s.Cut(0, 690*time.Millisecond).Peak(); before > 0.001 {
		t.Errorf("peak %.3f before the sound begins", before)
	}
	if after := s.Cut(710*time.Millisecond, time.Second).Peak(); after < 0.05 {
		t.Errorf("peak %.3f after it began", after)
	}
}

// babble is noise that no other seed makes.
func babble(seed uint64, d time.Duration) Sound {
	rng := rand.New(rand.NewPCG(seed, 1))
	n := Sample(d)
	s := Sound{L: make([]float32, n), R: make([]float32, n)}
	for i := range n {
		s.L[i], s.R[i] = float32(rng.NormFloat64()*0.1), float32(rng.NormFloat64()*0.1)
	}
	return s
}

func mixOf(parts []Sound, gains ...float32) Sound {
	out := parts[0].Cut(0, parts[0].Length())
	for i := range out.L {
		out.L[i], out.R[i] = 0, 0
		for k, p := range parts {
			out.L[i] += gains[k] * p.L[i]
			out.R[i] += gains[k] * p.R[i]
		}
	}
	return out
}

func TestUnmixFindsTheGains(t *testing.T) {
	parts := []Sound{babble(1, time.Second), babble(2, time.Second), babble(3, time.Second)}
	gains, rest := Unmix(mixOf(parts, 1.4, 0.4, 0), parts)
	for i, want := range []float64{1.4, 0.4, 0} {
		near(t, "gain", gains[i], want, 0.001)
	}
	if rest > -60 {
		t.Errorf("rest %.1f dB", rest)
	}
	// A sound that nobody expected stays as the rest: half the power of the mix.
	if _, rest = Unmix(mixOf(parts, 1, 0, 1), parts[:1]); math.Abs(rest+3.01) > 0.2 {
		t.Errorf("rest %.2f dB with a stranger, want -3", rest)
	}
}

func TestUnmixAdmitsWhatItCannotTell(t *testing.T) {
	a, b := babble(1, time.Second), babble(2, time.Second)
	silence := mixOf([]Sound{a}, 0)
	both := Sum(a, b)
	gains, rest := Unmix(both, []Sound{a, b, silence, both})
	near(t, "first gain", gains[0], 1, 0.001)
	near(t, "second gain", gains[1], 1, 0.001)
	if !math.IsNaN(gains[2]) || !math.IsNaN(gains[3]) {
		t.Errorf("silence ×%v, the sum of the others ×%v; want NaN", gains[2], gains[3])
	}
	if rest > -60 {
		t.Errorf("rest %.1f dB", rest)
	}
}

func TestPlaceIsExactToTheSample(t *testing.T) {
	source := babble(5, 3*time.Second)
	for _, late := range []int{0, 1, -1, 137, -480, 2399} {
		// The film plays the source from 0.5 s on, beginning at 1 s, and late.
		film := Sound{L: make([]float32, 4*Rate), R: make([]float32, 4*Rate)}
		first := Sample(time.Second) + late
		from := Sample(500 * time.Millisecond)
		for i := range 2 * Rate {
			film.L[first+i], film.R[first+i] = source.L[from+i], source.R[from+i]
		}
		got, score := Place(film, time.Second, 2*time.Second, source, 500*time.Millisecond, 50*time.Millisecond)
		if want := time.Duration(float64(late) / Rate * float64(time.Second)); (got - want).Abs() > time.Microsecond {
			t.Errorf("%d samples late: found %v, want %v", late, got, want)
		}
		near(t, "score", score, 1, 0.05)
	}
}

func TestWithoutTakesPartsOut(t *testing.T) {
	a, b := babble(1, time.Second), babble(2, time.Second)
	mix := Sum(a, b)
	left := Without(mix, 250*time.Millisecond, []Sound{b.Cut(250*time.Millisecond, 750*time.Millisecond)}, []float64{1})
	largest, _ := Difference(left.Cut(250*time.Millisecond, 750*time.Millisecond), a.Cut(250*time.Millisecond, 750*time.Millisecond))
	if largest > 1e-6 {
		t.Errorf("largest difference %v inside the stretch", largest)
	}
	if largest, _ = Difference(left.Cut(0, 250*time.Millisecond), mix.Cut(0, 250*time.Millisecond)); largest != 0 {
		t.Errorf("largest difference %v before the stretch", largest)
	}
}

func TestDifferenceIsRelative(t *testing.T) {
	a := babble(1, time.Second)
	b := mixOf([]Sound{a, babble(2, time.Second)}, 1, 0.1)
	if _, relative := Difference(a, b); math.Abs(relative+20) > 0.2 {
		t.Errorf("%.2f dB, want -20", relative)
	}
}

// syncFilm makes a film whose lamp flashes for three frames at every second,
// and whose ticks come later than the flashes.
func syncFilm(t *testing.T, late time.Duration) string {
	t.Helper()
	w := sound.NewWave(4 * time.Second)
	for at := late; at < 4*time.Second; at += time.Second {
		if at >= 0 {
			w.AddMono(sound.Tick(), sound.Samples(at), sound.TickLevel, 0)
		}
	}
	w.Add(sound.Radio(4*time.Second, 0), 0, 0.2) // ticks are found under music
	wav := filepath.Join(t.TempDir(), "ticks.wav")
	if err := w.WriteWAV(wav); err != nil {
		t.Fatal(err)
	}
	return makeMedia(t, "sync.mp4", "-f", "lavfi", "-t", "4",
		"-i", "color=c=0x302040:s=320x180:r=25,drawbox=x=200:y=40:w=24:h=24:c=white:t=fill:enable='lt(mod(n,25),3)'",
		"-i", wav, "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-c:a", "aac", "-b:a", "192k")
}

func TestFlashAndTick(t *testing.T) {
	for _, late := range []time.Duration{0, 40 * time.Millisecond, -25 * time.Millisecond} {
		path := syncFilm(t, late)
		brightness, err := Brightness(t.Context(), path, []Area{{204, 44, 16, 16}, {20, 20, 16, 16}})
		if err != nil {
			t.Fatal(err)
		}
		if len(brightness[0]) != 100 || len(brightness[1]) != 100 {
			t.Fatalf("%d and %d frames, want 100", len(brightness[0]), len(brightness[1]))
		}
		if other := Flashes(brightness[1]); len(other) != 0 {
			t.Errorf("flashes at %v beside the lamp", other)
		}
		starts := Flashes(brightness[0])
		if len(starts) != 4 || starts[0] != 0 || starts[1] != 25 || starts[3] != 75 {
			t.Fatalf("flashes at %v, want every 25 frames", starts)
		}
		heard, err := Decode(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		for _, frame := range starts[1:] {
			flash := time.Duration(frame) * 40 * time.Millisecond
			at, score := FindPulse(heard, sound.Tick(), flash, 150*time.Millisecond)
			if offset := at - flash; (offset-late).Abs() > 300*time.Microsecond || score < 0.6 {
				t.Errorf("tick %v after the flash at %v (score %.2f), want %v", offset, flash, score, late)
			}
		}
	}
}

func TestFindPulseIsUnsureOfMusic(t *testing.T) {
	w := sound.Song()
	s := Sound{L: make([]float32, w.Len()), R: make([]float32, w.Len())}
	for i := range w.L {
		s.L[i], s.R[i] = float32(w.L[i]), float32(w.R[i])
	}
	for second := 1; second < 10; second++ {
		if at, score := FindPulse(s, sound.Tick(), time.Duration(second)*time.Second, 150*time.Millisecond); score > 0.4 {
			t.Errorf("a tick at %v in music without ticks (score %.2f)", at, score)
		}
	}
}

func TestFrames(t *testing.T) {
	path := makeMedia(t, "colors.mp4", "-f", "lavfi", "-t", "1", "-i", "color=c=red:s=64x36:r=30", "-f", "lavfi", "-t", "1", "-i", "color=c=blue:s=64x36:r=30",
		"-filter_complex", "[0][1]concat", "-preset", "ultrafast", "-pix_fmt", "yuv420p")
	frames, err := Frames(t.Context(), path, []time.Duration{0, 990 * time.Millisecond, time.Second, 1900 * time.Millisecond}, 32, 18)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range frames {
		red, blue := f.Pix[3*(9*32+16)], f.Pix[3*(9*32+16)+2]
		if wantRed := i < 2; (red > 200) != wantRed || (blue > 200) == wantRed {
			t.Errorf("frame %d: red %d, blue %d", i, red, blue)
		}
	}
}
