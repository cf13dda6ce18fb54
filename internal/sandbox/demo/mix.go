// Measures the demonstration's mix: estimates the gain of each known sound in each range of the film, and compares it
// with the edit.

package demo

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"
)

// musicPart is the name of the music among the parts of the mix.
const musicPart = "music"

// part is one of the sounds mixed in a range of the film.
type part struct {
	name  string
	sound audio // in that range, faded as the edit states, at full volume
	gain  float64
}

// partsOf lists the sounds that are mixed from a to b, between two of the film's cuts.
func (j *judge) partsOf(a, b time.Duration) []part {
	var parts []part
	add := func(name, path string, from time.Duration, gain float64) audio {
		s := j.heard[path].cut(from, from+b-a)
		parts = append(parts, part{name, s, gain})
		return s
	}
	if remix := j.film.remixAt(a); remix != nil {
		from := a - remix.from + remix.offset
		add("voice", j.stem(voiceStem).path, from, remix.voice)
		add("background", j.stem(backgroundStem).path, from, remix.background)
	} else {
		join := j.film.joinAt(a)
		for _, s := range j.film.segments {
			if s.start <= a && a < s.end() {
				sound := add(j.film.clips[s.clip].name, j.film.clips[s.clip].path, a-s.start+s.from, s.volume)
				if join != nil {
					sound.cross(a-join.start, join.overlap, s.start == join.start)
				}
			}
		}
	}
	under := music{} // if the music pauses, it must not be audible either
	for _, m := range j.film.music {
		if m.start <= a && a < m.end() {
			under = m
		}
	}
	add(musicPart, j.music, a-under.start+under.from, under.volume)
	fade, rest := j.film.fade(), j.film.length()-a
	for _, p := range parts {
		switch {
		case a < fade:
			p.sound.shape(func(at time.Duration) float64 { return float64(a+at) / float64(fade) })
		case rest <= fade:
			p.sound.shape(func(at time.Duration) float64 { return float64(rest-at) / float64(fade) })
		}
	}
	return parts
}

// shape multiplies a sound by a gain that changes over time.
func (s audio) shape(gain func(at time.Duration) float64) {
	for i := range s {
		s[i] *= float32(gain(time.Duration((float64(i/2) + 0.5) / sampleRate * float64(time.Second))))
	}
}

// cross fades a sound in or out with equal power over a join. The sound begins at offset into of the join. If it is
// hardly audible there, it becomes silence, because its gain would be a guess.
func (s audio) cross(into, length time.Duration, in bool) {
	s.shape(func(at time.Duration) float64 {
		turn := math.Pi / 2 * float64(into+at) / float64(length)
		if in {
			return math.Sin(turn)
		}
		return math.Cos(turn)
	})
	if s.level() < -50 {
		clear(s)
	}
}

// gains compares the gains of some of the sounds with those of the edit.
type gains struct {
	want, got []string
	off       bool // at least one is out of tolerance
}

func (g *gains) add(want, got string, ok bool) {
	g.want, g.got, g.off = append(g.want, want), append(g.got, got), g.off || !ok
}

// mix decomposes the film's sound, range by range: each sound must have the gain that the edit states. A sound in the
// wrong place would not be found, so this checks places too.
func (j *judge) mix(context.Context) error {
	heard := j.heard[j.video]
	allowed := 0.3 // dB
	if !j.ownMedia() {
		allowed = 1.5 // encoders make noisy recordings quieter
	}
	var voice, music, moving gains
	var overall float64 // the gain that brings the film to its loudness
	quiet, silent := "", true
	for i, cuts := 1, j.film.cuts(); i < len(cuts); i++ {
		a, b := cuts[i-1], cuts[i]
		if j.film.mutedAt(a) {
			// The encoder smears the edges of a silence over a frame or two.
			level := max(heard.cut(a+2*aacFrame, b-2*aacFrame).level(), -120)
			quiet, silent = quiet+fmt.Sprintf("%.1f to %.1f s: %.0f dBFS", a.Seconds(), b.Seconds(), level), silent && level < silentBelow
			continue
		}
		if b-a < 300*time.Millisecond {
			continue // too short to tell sounds apart
		}
		parts := j.partsOf(a, b)
		for k, gain := range unmix(heard.cut(a, b), parts) {
			p := parts[k]
			if math.IsNaN(gain) {
				continue // silent there
			}
			if overall == 0 {
				overall = gain / p.gain
			}
			gain /= overall
			if least, most := j.film.musicGains(a); p.name == musicPart && least != most {
				share := gain / p.gain
				moving.add(fmt.Sprintf("×%.2f to ×%.2f", least, most), fmt.Sprintf("×%.2f", share), share >= least && share <= most)
				continue
			}
			ok := math.Abs(decibels(gain/p.gain)) <= allowed
			if p.gain == 0 {
				ok = math.Abs(gain) < 0.03*math.Pow(10, allowed-0.3)
			}
			into := &voice
			if p.name == musicPart {
				into = &music
			}
			into.add(fmt.Sprintf("×%.2f", p.gain), fmt.Sprintf("×%.2f", gain), ok)
		}
	}
	within := fmt.Sprintf(" ± %.1f dB", allowed)
	j.addGains("clips, voice, background", voice, " ", within)
	j.addGains("music", music, " ", within)
	if j.ownMedia() {
		j.addGains("ducked and fading music", moving, ", ", " of its volume")
	}
	j.add("muted range", fmt.Sprintf("below %.0f dBFS", silentBelow), quiet, silent && quiet != "")
	return nil
}

func (j *judge) addGains(name string, g gains, separator, tolerance string) {
	j.add(name, strings.Join(g.want, separator)+tolerance, strings.Join(g.got, separator), !g.off && len(g.got) > 0)
}

func decibels(gain float64) float64 { return 20 * math.Log10(math.Abs(gain)) }

// unmix estimates the gain of each of several known sounds in a mix: the gains with which their sum is closest to it
// (least squares). A silent sound gets NaN.
func unmix(mix audio, parts []part) []float64 {
	gains := make([]float64, len(parts))
	var used []int
	for i, p := range parts {
		gains[i] = math.NaN()
		if p.sound.level() > -75 {
			used = append(used, i)
		}
	}
	rows := make([][]float64, len(used))
	for i, u := range used {
		for _, other := range used {
			rows[i] = append(rows[i], dot(parts[u].sound, parts[other].sound))
		}
		rows[i] = append(rows[i], dot(parts[u].sound, mix))
	}
	for i, pivot := range rows {
		for k, row := range rows {
			if k == i {
				continue
			}
			f := row[i] / pivot[i]
			for c := range row {
				row[c] -= f * pivot[c]
			}
		}
	}
	for i, row := range rows {
		gains[used[i]] = row[len(row)-1] / row[i]
	}
	return gains
}
