// Regions of the mix, and how two of them meet: one continues the other, both cross-fade, or each fades by itself.

package engine

import (
	"math"

	"cutroom/internal/film/audio"
	"cutroom/internal/film/media"
	"cutroom/internal/film/timeline"
)

const (
	// seamFade softens a cut between unrelated sounds: 2 ms are too short to hear and long enough to remove the
	// click.
	seamFade = 2 * sampleRate / 1000
	// directiveFade is the cross-fade at the ends of a directive's range. Both sides ramp linearly, so a stem that
	// equals what it replaces passes unchanged.
	directiveFade = 5 * sampleRate / 1000
)

// region is a range of the mix. What it plays is set after planDecodes.
type region struct {
	audio.Region
	// keepsIn and keepsOut keep readOn from replacing the fades that the client asked for.
	keepsIn, keepsOut bool
	ducking           *timeline.Ducking // nil if voices do not duck the region
	voice             bool              // ducks the music
}

// soundsLike reports whether two regions have the same gain wherever both play.
func (r *region) soundsLike(b *region) bool {
	return r.Volume == b.Volume && len(r.Curves) == 0 && len(b.Curves) == 0 && r.ducking == nil && b.ducking == nil && r.voice == b.voice
}

// audioUse is one continuous range of a source's sound that the timeline plays.
type audioUse struct {
	source *Source
	from   float64 // first needed sample of the source, at 48 kHz
	tempo  float64
	pace   *timeline.Pace // in place of tempo, which is 1; nil if the tempo is constant
	// turned means that the source plays backwards: its sample last is sample 0 of the reversed source, in which from
	// counts.
	turned bool
	last   int64

	start  int64 // output sample at which from plays
	length int64 // output samples
	line   line
	// regions play the range; there are several if the gain changes.
	regions []*region
}

// made reports whether the use plays a sound derived from the source's samples, not those samples themselves.
func (u *audioUse) made() bool { return u.tempo != 1 || u.pace != nil || u.turned }

// stretch returns the sound to make.
func (u audioUse) stretch() audio.Stretch {
	s := audio.Stretch{From: u.from, Tempo: u.tempo, Length: u.length, Backwards: u.turned, Last: u.last}
	if u.pace != nil { // a nil pointer in an interface is not nil
		s.Pace = u.pace
	}
	return s
}

// line groups uses: a use can only continue a use of the same line.
type line struct {
	kind lineKind
	run  int // segments: the first one of the run; loops: the clip itself, because nothing continues a loop
}

type lineKind int

const (
	segmentLine lineKind = iota
	clipLine
	loopLine
	stemLine
)

// readOn joins a region to the one that continues it. If the gain changes, a cross-fade of seamFade softens the
// change; otherwise the sound passes unchanged.
func (u *audioUse) readOn(next *region) {
	before := u.regions[len(u.regions)-1]
	switch {
	case before.keepsOut || next.keepsIn:
	case before.soundsLike(next):
		before.End, before.FadeOut, before.keepsOut = next.End, next.FadeOut, next.keepsOut
		return
	default:
		half := min(seamFade, before.End-before.Start, next.End-next.Start) / 2
		before.End, before.FadeOut = before.End+half, audio.Fade{Length: 2 * half}
		next.Start, next.FadeIn = next.Start-half, audio.Fade{Length: 2 * half}
	}
	u.regions = append(u.regions, next)
}

// useEnd is the lookup key for the use that another one continues.
type useEnd struct {
	line   line
	source *Source
	tempo  float64
	at     int64 // output sample
}

// readsOnBackwards reports whether a reversed segment at its source's speed continues the use before it: it plays the
// source's samples right before that use's last ones, as the pieces of a clip do that was reversed and then cut.
func (u audioUse) readsOnBackwards(before audioUse) bool {
	return u.turned && before.turned && u.source == before.source && u.tempo == 1 && before.tempo == 1 &&
		u.pace == nil && before.pace == nil && u.start == before.start+before.length && u.last == before.last-before.length
}

// joined merges uses that continue each other: segments cut from one take, music that was split to change its volume,
// and stems of neighbouring directives. Fades of their own would leave gaps.
func joined(uses []audioUse) []audioUse {
	var all []audioUse
	ends := map[useEnd]int{}
	for _, u := range uses {
		end := useEnd{u.line, u.source, u.tempo, u.start + u.length}
		i, found := ends[useEnd{u.line, u.source, u.tempo, u.start}]
		if !found || u.line.kind != segmentLine && math.Abs(all[i].from+float64(all[i].length)*u.tempo-u.from) >= 1 {
			ends[end] = len(all)
			all = append(all, u)
			continue
		}
		before := &all[i]
		before.readOn(u.regions[0])
		before.length += u.length
		ends[end] = i
	}
	return all
}

// crossCuts cross-fades the sounds of two segments with equal power at a cut, if both sources have sound beyond it.
// Otherwise each fades by itself. A stretched sound keeps its ends: moving them would change all of its samples.
func crossCuts(uses []audioUse) {
	for i := 1; i < len(uses); i++ {
		a, b := &uses[i-1], &uses[i]
		if a.line == b.line {
			continue
		}
		before, after := a.regions[0], b.regions[0]
		half := min(seamFade, before.End-before.Start, after.End-after.Start) / 2
		end := int64(a.from) + before.End - a.start // in a's source
		if before.End != after.Start || a.made() || b.made() || before.keepsOut || after.keepsIn ||
			end+half > samplesOf(a.source.info.Audio.End) || int64(b.from)-half < samplesOf(b.source.info.Audio.First) {
			continue
		}
		cross := audio.Fade{Length: 2 * half, Shape: audio.Power}
		before.End, before.FadeOut, a.length = before.End+half, cross, a.length+half
		after.Start, after.FadeIn = after.Start-half, cross
		b.start, b.from, b.length = b.start-half, b.from-float64(half), b.length+half
	}
}

// join fades a segment's sound over the frames of its transitions: an equal-power cross-fade where it overlaps its
// neighbour's sound, and a fade to or from silence elsewhere.
func (r *region) join(p *placed, rate media.Rational) {
	over := func(from, to int64, j timeline.Join) audio.Fade {
		f := audio.Fade{Length: samplesAt(to, rate) - samplesAt(from, rate)}
		if j.Overlap() > 0 {
			f.Shape = audio.Power
		}
		return f
	}
	end := p.frame + p.frames
	r.fade(over(p.frame, p.frame+p.join.Overlap()+p.join.FadeIn(), p.join),
		over(end-p.next.Overlap()-p.next.FadeOut(), end, p.next))
}

// fade gives the region the fades that the client requested; those without a length change nothing.
func (r *region) fade(in, out audio.Fade) {
	if in.Length > 0 {
		r.FadeIn, r.keepsIn = in, true
	}
	if out.Length > 0 {
		r.FadeOut, r.keepsOut = out, true
	}
}

func newRegion(name string, start, end int64, volume float64) *region {
	return &region{Region: audio.Region{Name: name, Start: start, End: end, Envelope: audio.Envelope{Volume: volume}}}
}

// curves returns the envelope of volume points whose times count from output sample from.
func curves(points []timeline.Point, from int64) []audio.Curve {
	if len(points) == 0 {
		return nil
	}
	var c audio.Curve
	for _, p := range points {
		c = append(c, audio.Knot{At: float64(from + samplesOf(p.At)), Gain: p.Volume})
	}
	return []audio.Curve{c}
}

// roundUp returns n rounded up to a multiple of unit.
func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }
