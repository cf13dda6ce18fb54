// Onsets of generated rhythms: how many are found, how exactly, and how many are false.

package audio_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"cutroom/internal/film/audio"
)

// rhythm is a series of sounds that begin at known times, in seconds.
type rhythm struct {
	name   string
	onsets []float64
	voice  func(event int, since float64) float64 // heard since that time
	length float64                                // of one event, seconds
	pad    signal                                 // plays all the time
}

func (r rhythm) render() []byte {
	const seconds = 8
	mono := make([]float64, seconds*audio.SampleRate)
	for e, onset := range r.onsets {
		from := int(math.Ceil(onset * audio.SampleRate))
		for i := from; i < min(len(mono), from+int(r.length*audio.SampleRate)); i++ {
			mono[i] += r.voice(e, float64(i)/audio.SampleRate-onset)
		}
	}
	return signal(func(c int, at float64) float64 {
		x := mono[min(len(mono)-1, int(math.Round(at*audio.SampleRate)))]
		if r.pad != nil {
			x += r.pad(c, at)
		}
		return x
	}).render(2, seconds)
}

func every(period float64, steps ...int) (at []float64) {
	for begin := 0; ; begin += 16 {
		for _, s := range steps {
			t := 0.2 + float64(begin+s)*period
			if t > 7.5 {
				return at
			}
			at = append(at, t)
		}
	}
}

func kick(_ int, t float64) float64 {
	return 0.8 * math.Sin(2*math.Pi*(50*t+4*(1-math.Exp(-t*30)))) * math.Exp(-t*12)
}

func rhythms() []rhythm {
	random := rand.New(rand.NewPCG(8, 9))
	hiss := func(decay, level float64) func(int, float64) float64 {
		return func(_ int, t float64) float64 { return level * (2*random.Float64() - 1) * math.Exp(-t*decay) }
	}
	scale := []float64{261.6, 293.7, 329.6, 392, 440, 523.3, 587.3, 659.3}
	pluck := func(e int, t float64) (x float64) {
		for h := 1.0; h <= 6; h++ {
			x += math.Sin(2*math.Pi*scale[e*5%8]*h*t) / h * math.Exp(-t*(3+2*h))
		}
		return 0.3 * x * min(1, t/0.003)
	}
	drums := func(e int, t float64) float64 {
		switch e % 3 {
		case 0:
			return kick(e, t)
		case 1:
			return hiss(18, 0.5)(e, t) + 0.3*math.Sin(2*math.Pi*185*t)*math.Exp(-t*20)
		}
		return hiss(60, 0.25)(e, t)
	}
	pad := func(c int, t float64) (x float64) {
		for i, hz := range []float64{110, 138.6, 164.8, 220, 277.2} {
			x += 0.05 * math.Sin(2*math.Pi*hz*t+float64(i+c)) * (1 + 0.3*math.Sin(2*math.Pi*0.3*t+float64(i)))
		}
		return x
	}
	syllable := func(e int, t float64) (x float64) { // of 160 ms, with an attack of 25 ms
		pitch := 120 + 10*float64(e%4)
		for h := 1.0; h <= 20; h++ {
			formant := math.Exp(-math.Pow((pitch*h-500-300*float64(e%3))/400, 2)) + 0.5*math.Exp(-math.Pow((pitch*h-1800)/500, 2))
			x += formant * math.Sin(2*math.Pi*pitch*h*t)
		}
		return 0.2 * x * min(1, t/0.025) * min(1, (0.16-t)/0.05)
	}
	strings := func(e int, t float64) (x float64) {
		for h := 1.0; h <= 8; h++ {
			x += math.Sin(2*math.Pi*scale[e*3%8]*h*t+0.3*math.Sin(2*math.Pi*5*t)) / h
		}
		return 0.15 * x * min(1, t/0.04) * min(1, (0.55-t)/0.1)
	}
	beep := func(_ int, t float64) float64 { return 0.5 * math.Sin(2*math.Pi*777.7*t) }
	return []rhythm{
		{"kicks", every(0.125, 0, 4, 8, 12), kick, 0.4, nil},
		{"soft kicks", every(0.125, 0, 4, 8, 12), func(e int, t float64) float64 { return 0.05 * kick(e, t) }, 0.4, nil},
		{"hi-hats", every(0.11, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), hiss(70, 0.3), 0.1, nil},
		{"plucked melody", every(0.15, 0, 2, 3, 6, 8, 10, 11, 14), pluck, 0.8, nil},
		{"syncopated drums over a pad", every(0.125, 0, 3, 4, 7, 10, 11, 12, 14), drums, 0.35, pad},
		{"syllables", every(0.105, 0, 2, 5, 7, 10, 13), syllable, 0.16, nil},
		{"bowed notes", every(0.15, 0, 4, 8, 12), strings, 0.55, nil},
		{"beeps that are cut off", every(0.125, 0, 4, 8, 12), beep, 0.1011, nil},
		{"cut-off beeps over a soft pad", every(0.125, 0, 4, 8, 12), beep, 0.3, noise(3, 0.01, 0)},
		{"drums over hiss", every(0.125, 0, 3, 6, 8, 12), kick, 0.4, noise(9, 0.01, 0)},
	}
}

// Nine of ten onsets of each rhythm are found within 30 ms, and nine of ten that are found exist.
func TestOnsetsOfRhythms(t *testing.T) {
	for _, r := range rhythms() {
		d := audio.NewRhythmDetector(2)
		write(t, d, r.render())
		found := d.Onsets()
		hits, next := 0, 0
		for _, want := range r.onsets {
			for next < len(found) && float64(found[next])/audio.SampleRate < want-0.03 {
				next++
			}
			if next < len(found) && float64(found[next])/audio.SampleRate <= want+0.03 {
				hits, next = hits+1, next+1
			}
		}
		recall, precision := float64(hits)/float64(len(r.onsets)), float64(hits)/float64(max(1, len(found)))
		if recall < 0.9 || precision < 0.9 {
			t.Errorf("%s: recall %.2f, precision %.2f, %d found of %d", r.name, recall, precision, len(found), len(r.onsets))
		}
	}
}

// A sound without onsets has none. If there are too many, the strongest are kept.
func TestOnsetsAreFewAndAscending(t *testing.T) {
	for name, s := range map[string]signal{"silence": tone(1, 0), "a tone": tone(440, 0.3), "noise": noise(4, 0.4, 0)} {
		d := audio.NewRhythmDetector(1)
		write(t, d, s.render(1, 10))
		if found := d.Onsets(); len(found) > 1 { // its beginning is one
			t.Errorf("%s has onsets at %v", name, found)
		}
	}
	d := audio.NewRhythmDetector(1)
	second := gated(noise(5, 0.5, 0), 0.1, 0.3, 0).render(1, 1)
	for range 250 {
		d.Write(second)
	}
	found := d.Onsets()
	for i := range found[1:] {
		if found[i] >= found[i+1] {
			t.Fatalf("onsets %v", found[i:i+2])
		}
	}
	if len(found) != audio.MaxOnsets {
		t.Errorf("%d onsets", len(found))
	}
}
