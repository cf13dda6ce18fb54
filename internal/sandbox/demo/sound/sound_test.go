package sound

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMusicIsTheSameEveryTime(t *testing.T) {
	for name, play := range map[string]func() *Wave{
		"song": Song, "radio": func() *Wave { return Radio(3*time.Second, Beat) }, "night": func() *Wave { return Night(3*time.Second, Beat) },
	} {
		a, b := play(), play()
		if !slices.Equal(a.L, b.L) || !slices.Equal(a.R, b.R) {
			t.Errorf("%s differs between two performances", name)
		}
		if a.RMS() < 0.01 {
			t.Errorf("%s is silent", name)
		}
	}
}

// amplitude is that of one frequency in a stretch of the left channel.
func amplitude(w *Wave, hz float64, from, to time.Duration) float64 {
	var re, im float64
	stretch := w.L[Samples(from):Samples(to)]
	for i, v := range stretch {
		hann := 0.5 - 0.5*math.Cos(2*math.Pi*float64(i)/float64(len(stretch)))
		sin, cos := math.Sincos(2 * math.Pi * hz * float64(i) / Rate)
		re, im = re+v*hann*cos, im+v*hann*sin
	}
	return math.Hypot(re, im) * 4 / float64(len(stretch))
}

func TestSongFollowsItsChords(t *testing.T) {
	w := Song()
	if got, want := w.Len(), 6*Samples(Bar); got != want {
		t.Fatalf("%d samples, want %d", got, want)
	}
	// In every bar the notes of its chord are louder than the others, from the
	// piano's lowest octave up.
	for bar, c := range progression {
		from, to := time.Duration(bar)*Bar, time.Duration(bar+1)*Bar
		var in, out, members float64
		for class := range 12 {
			var loud float64
			for octave := range 2 {
				loud += amplitude(w, hertz(55+class+12*octave), from, to)
			}
			if slices.ContainsFunc(c.notes, func(note int) bool { return (note-55-class)%12 == 0 }) {
				in, members = in+loud, members+1
			} else {
				out += loud
			}
		}
		if in/members < 3*out/(12-members) {
			t.Errorf("bar %d: its notes %.4f, the others %.4f", bar, in/members, out/(12-members))
		}
	}
}

func TestSongHasABeat(t *testing.T) {
	w := Song()
	// The strokes are told from held notes by their high frequencies.
	power := func(at float64) float64 {
		var sum float64
		for i := beats(at); i < beats(at)+Rate/25; i++ {
			d := w.L[i] - w.L[i-1]
			sum += d * d
		}
		return sum
	}
	for bar := range len(progression) - 1 {
		start := float64(4 * bar)
		for _, stroke := range []float64{1, 2.5, 3} {
			if before, after := power(start+stroke-0.1), power(start+stroke); after < 2*before {
				t.Errorf("bar %d beat %.1f: power %.4f after %.4f", bar, stroke, after, before)
			}
		}
	}
}

// The clip's music stands at the sides, so that a voice in the middle can be
// told from it.
func TestRadioIsWide(t *testing.T) {
	w := Radio(5*time.Second, Beat)
	var middle, side float64
	for i := range w.L {
		m, s := w.L[i]+w.R[i], w.L[i]-w.R[i]
		middle, side = middle+m*m, side+s*s
	}
	if side < 0.3*middle {
		t.Errorf("side %.2f of middle, want at least 0.3", side/middle)
	}
}

func TestTicksStandAtWholeSeconds(t *testing.T) {
	w := NewWave(2500 * time.Millisecond)
	w.AddTicks()
	tick := len(Tick())
	for i := range w.L {
		within := i%Rate < tick
		if !within && w.L[i] != 0 {
			t.Fatalf("sample %d is %v, outside of a tick", i, w.L[i])
		}
	}
	for second := range 3 {
		var peak float64
		for _, v := range w.L[second*Rate : second*Rate+tick] {
			peak = max(peak, math.Abs(v))
		}
		if math.Abs(peak-TickLevel) > TickLevel/20 {
			t.Errorf("tick %d has a peak of %.3f, want %.3f", second, peak, TickLevel)
		}
	}
}

func TestPanKeepsThePower(t *testing.T) {
	for _, pan := range []float64{-1, -0.4, 0, 0.7, 1} {
		w := &Wave{L: make([]float64, 4), R: make([]float64, 4)}
		w.AddMono([]float64{1, -1, 1, -1}, 0, 0.5, pan)
		if math.Abs(w.RMS()-0.5) > 1e-9 {
			t.Errorf("pan %v: RMS %v, want 0.5", pan, w.RMS())
		}
	}
}

func TestAddLeavesOutWhatDoesNotFit(t *testing.T) {
	w := &Wave{L: make([]float64, 3), R: make([]float64, 3)}
	w.Add(&Wave{L: []float64{1, 2, 3}, R: []float64{4, 5, 6}}, -1, 1)
	w.AddMono([]float64{10, 10}, 2, 1, 0)
	if !slices.Equal(w.L[:2], []float64{2, 3}) || math.Abs(w.L[2]-10) > 1e-9 {
		t.Errorf("left %v", w.L)
	}
}

func TestTooLoudIsNotWritten(t *testing.T) {
	w := &Wave{L: []float64{1.2}, R: []float64{0}}
	if err := w.WriteWAV(filepath.Join(t.TempDir(), "a.wav")); err == nil || !strings.Contains(err.Error(), "too loud") {
		t.Errorf("error %v", err)
	}
}

// Every sentence speaks of its bar, so it has to end in it, and before the next
// one begins.
func TestScriptFitsItsBars(t *testing.T) {
	script := Script(Beat)
	for i, line := range script {
		samples, err := Speak(t.Context(), line.Voice, line.Text)
		if err != nil {
			t.Fatal(err)
		}
		end := line.At + time.Duration(float64(len(samples))/Rate*float64(time.Second))
		limit := Beat + ((line.At-Beat)/Bar+1)*Bar
		if i+1 < len(script) {
			limit = min(limit, script[i+1].At)
		}
		if end > limit {
			t.Errorf("%q ends at %v, after %v", line.Text, end, limit)
		}
		if again, err := Speak(t.Context(), line.Voice, line.Text); err != nil || !slices.Equal(samples, again) {
			t.Errorf("%q sounds different the second time (error %v)", line.Text, err)
		}
	}
}

func TestLevelCountsSpeechOnly(t *testing.T) {
	samples := make([]float64, Rate)
	for i := range Rate / 5 {
		samples[i] = 0.01 * math.Sin(float64(i)*0.1)
	}
	out, err := Level(samples)
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
	for _, v := range out[:Rate/5] {
		sum += v * v
	}
	if rms := math.Sqrt(sum / (Rate / 5)); math.Abs(rms-0.1) > 0.001 {
		t.Errorf("RMS %v while it sounds, want 0.1", rms)
	}
	if _, err := Level(make([]float64, Rate)); err == nil {
		t.Error("silence has a level")
	}
}
