package sound

import (
	"math"
	"time"
)

// Beat and Bar are the grid of the music: 100 beats a minute, four to a bar.
const (
	Beat = 600 * time.Millisecond
	Bar  = 4 * Beat
)

// chord is one bar of harmony, as MIDI keys.
type chord struct {
	root  int   // for the bass
	notes []int // close together, for piano and pad
	scale []int // for arpeggio and melody
}

// progression is the song: A minor, F, C, G, A minor again, F.
var progression = []chord{
	{45, []int{57, 60, 64, 67, 71}, []int{69, 72, 76, 79, 83}}, // Am9
	{41, []int{57, 60, 64, 65, 69}, []int{69, 72, 76, 77, 81}}, // Fmaj7
	{36, []int{55, 60, 64, 67, 71}, []int{67, 71, 72, 76, 79}}, // Cmaj7
	{43, []int{55, 59, 62, 64, 69}, []int{67, 71, 74, 76, 81}}, // G6/9
	{45, []int{57, 60, 64, 67, 71}, []int{69, 72, 76, 79, 83}}, // Am9
	{41, []int{57, 60, 65, 69, 72}, []int{69, 72, 76, 77, 81}}, // F
}

// beats is a place in the music, in beats from its start.
func beats(n float64) int { return int(math.Round(n * Beat.Seconds() * Rate)) }

func beatSeconds(n float64) float64 { return n * Beat.Seconds() }

// Song is the music for the film: six bars with drums, bass, electric piano and
// a melody.
func Song() *Wave {
	w := NewWave(Bar * time.Duration(len(progression)))
	keys := NewWave(Bar * time.Duration(len(progression)))
	drumKick, drumSnare, drumHat, softHat := kick(), snare(), hat(0), hat(1)
	for bar, c := range progression {
		start := float64(4 * bar)
		// Piano: a held chord and two answers off the beat.
		for i, note := range c.notes {
			roll := int(0.011 * Rate * float64(i))
			pan := -0.5 + 0.25*float64(i)
			keys.AddMono(electricPiano(note, beatSeconds(1.4), 0.62), beats(start)+roll, 0.30, pan)
			keys.AddMono(electricPiano(note, beatSeconds(0.4), 0.45), beats(start+1.5)+roll/2, 0.24, pan)
			keys.AddMono(electricPiano(note, beatSeconds(1.1), 0.52), beats(start+2.5)+roll/2, 0.26, pan)
		}
		for _, n := range []struct {
			at, length float64
			up         int
		}{{0, 1.1, 0}, {1.5, 0.4, 0}, {2, 0.9, 12}, {3, 0.45, 7}, {3.5, 0.45, 0}} {
			w.AddMono(bass(c.root+n.up, beatSeconds(n.length)), beats(start+n.at), 0.24, 0)
		}
		for _, at := range []float64{0, 1.75, 2.5} {
			w.AddMono(drumKick, beats(start+at), 0.40, 0)
		}
		for _, at := range []float64{1, 3} {
			w.AddMono(drumSnare, beats(start+at), 0.42, 0.08)
		}
		for half := range 8 {
			at, stroke, gain := float64(half)/2, drumHat, 0.36
			if half%2 == 1 {
				// Late off-beats swing.
				at, stroke, gain = at+0.07, softHat, 0.26
			}
			w.AddMono(stroke, beats(start+at), gain, 0.35)
		}
		melody(keys, c, bar)
	}
	keys.room(0.5)
	w.Add(keys, 0, 1)
	w.FadeOut(400 * time.Millisecond)
	w.SetRMS(0.11)
	return w
}

// melody is a short phrase over each bar.
func melody(w *Wave, c chord, bar int) {
	phrases := [][]struct {
		at, length float64
		step       int
	}{
		{{0.5, 0.9, 2}, {1.5, 0.5, 3}, {2, 1.6, 1}},
		{{0, 0.5, 4}, {0.5, 0.9, 3}, {2.5, 1.2, 1}},
		{{0.5, 0.5, 1}, {1, 0.5, 3}, {1.5, 1.9, 4}},
		{{0, 0.9, 3}, {1, 0.4, 4}, {1.5, 1.0, 2}, {3, 0.8, 1}},
		{{0.5, 2.9, 4}},
		{{0, 3.5, 2}},
	}
	for _, n := range phrases[bar%len(phrases)] {
		tone := pluck(c.scale[n.step], beatSeconds(n.length), 0.8)
		w.AddMono(tone, beats(float64(4*bar)+n.at), 0.32, -0.3)
		w.AddMono(tone, beats(float64(4*bar)+n.at+0.75), 0.10, 0.6) // an echo across
	}
}

// Radio is the music that plays in the first clip itself: pads and running
// strings, wide apart, so that a voice in the middle can be told from it. lead
// is how much of the clip comes before its first bar.
func Radio(d, lead time.Duration) *Wave {
	w := NewWave(d)
	for bar := -1; bar*int(Bar)+int(lead) < int(d); bar++ {
		c := progression[(bar+len(progression))%len(progression)]
		if bar < 0 {
			c = progression[3] // the pick-up leads into A minor
		}
		at := Samples(lead) + bar*Samples(Bar)
		for i, note := range c.notes {
			if i == 2 {
				continue // leave room in the middle register
			}
			for side := range 2 {
				w.AddMono(pad(note, Bar.Seconds()*0.96, side), at, 0.13, float64(2*side-1)*0.92)
			}
		}
		w.AddMono(bass(c.root, Bar.Seconds()*0.9), at, 0.24, 0)
		for step := range 16 {
			pattern := []int{0, 2, 4, 1, 3, 2, 4, 3}
			note := c.scale[pattern[step%len(pattern)]]
			pan := 0.85
			if step%2 == 1 {
				pan = -0.85
			}
			w.AddMono(pluck(note, 0.5, 0.55), at+beats(float64(step)/4), 0.36, pan)
		}
	}
	w.room(0.35)
	return w
}

// Night is the sound of the second clip: water, wind and a few bells, in the
// harmony of the song's fourth bar onwards.
func Night(d, lead time.Duration) *Wave {
	w := NewWave(d)
	bells := NewWave(d)
	strokes := []struct {
		bar, beat float64
		note      int
	}{{0, 0, 4}, {0, 1.5, 2}, {0, 2.5, 3}, {1, 0, 2}, {1, 1, 4}, {1, 2.5, 1}}
	for i, s := range strokes {
		c := progression[3+int(s.bar)]
		at := Samples(lead) + beats(4*s.bar+s.beat)
		bells.AddMono(bell(c.scale[s.note], 2.6), at, 0.16, math.Sin(float64(i)*2.1)*0.7)
	}
	for bar := range 2 {
		for i, note := range progression[3+bar].notes[:3] {
			for side := range 2 {
				bells.AddMono(pad(note, Bar.Seconds()*0.97, side), Samples(lead)+bar*Samples(Bar), 0.05, float64(2*side-1)*(0.9-0.2*float64(i)))
			}
		}
	}
	bells.room(0.9)
	w.Add(bells, 0, 1)
	w.Add(surf(w.Len()), 0, 0.10)
	return w
}
