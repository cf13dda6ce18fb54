package demo

import (
	"context"
	"math"
	"time"
)

// levelWindow is the time over which the levels in the film are measured.
const levelWindow = 100 * time.Millisecond

// window is a measurement at one moment of the film, in dB. gain is the music's gain by its volume, without the
// film's loudness; NaN if no music is audible.
type window struct{ voice, music, gain float64 }

// curves are consecutive windows of a film.
type curves []window

// at returns the window at a fraction of the film.
func (c curves) at(share float64) window { return c[min(len(c)-1, int(share*float64(len(c))))] }

// levels decomposes the film's sound, window by window, into the levels of the first clip's voice and of the
// music.
func (j *judge) levels(ctx context.Context) (curves, error) {
	heard, err := j.decode(ctx, j.video)
	if err != nil {
		return nil, err
	}
	var all curves
	loudest := math.Inf(-1)
	for a := time.Duration(0); a+levelWindow <= j.film.length(); a += levelWindow {
		parts, err := j.layersAt(ctx, a)
		if err != nil {
			return nil, err
		}
		w := window{voice: math.Inf(-1), music: math.Inf(-1), gain: math.NaN()}
		for i, gain := range unmix(heard.cut(a, a+levelWindow), parts, levelWindow) {
			level := parts[i].sound.cut(parts[i].from, parts[i].from+levelWindow).level() + decibels(gain)
			switch {
			case math.IsNaN(gain):
			case parts[i].name == voiceStem:
				w.voice = level
			case parts[i].name == musicPart && parts[i].gain > 0:
				w.music, w.gain = level, decibels(gain/parts[i].gain)
				loudest = max(loudest, w.gain)
			}
		}
		all = append(all, w)
	}
	for i := range all {
		all[i].gain -= loudest
	}
	return all, nil
}

// layersAt lists the sounds that may be audible at a, with the first clip as its stems.
func (j *judge) layersAt(ctx context.Context, a time.Duration) ([]part, error) {
	var parts []part
	add := func(name, path string, from time.Duration, gain float64) error {
		s, err := j.decode(ctx, path)
		parts = append(parts, part{name: name, sound: s, from: from, gain: gain})
		return err
	}
	for i, s := range j.film.segments {
		if a+levelWindow <= s.start || a >= s.end() {
			continue
		}
		from := a - s.start + s.from
		if i > 0 {
			if err := add(j.film.clips[s.clip].name, j.film.clips[s.clip].path, from, 1); err != nil {
				return nil, err
			}
			continue
		}
		for _, stem := range []string{voiceStem, backgroundStem} {
			if err := add(stem, j.stems[stem], from, 1); err != nil {
				return nil, err
			}
		}
	}
	for _, m := range j.film.music {
		if m.start <= a && a < m.end() {
			return parts, add(musicPart, j.music, a-m.start+m.from, m.volume)
		}
	}
	return parts, nil
}

// stretch is a range of the film in which the same sounds are audible.
type stretch struct {
	from, to time.Duration
	name     string
}

// stretches returns the stretches of the film's sound, in order.
func (f film) stretches() []stretch {
	var all []stretch
	for i := range f.segments {
		from, to := f.alone(i)
		if s := f.segments[i]; s.overlap > 0 {
			all = append(all, stretch{s.start, from, "cross"})
		}
		for _, r := range f.remixes {
			if i > 0 {
				break
			}
			if r.from > from {
				all = append(all, stretch{from, r.from, "own sound"})
			}
			all, from = append(all, stretch{r.from, r.to, r.name()}), r.to
		}
		if from < to {
			all = append(all, stretch{from, to, f.clips[f.segments[i].clip].name + " · own sound"})
		}
	}
	return all
}

func (r remix) name() string {
	switch {
	case r.voice == 0 && r.background == 0:
		return "silent"
	case r.voice > 1:
		return "voice up · music down"
	}
	return "stems unchanged"
}
