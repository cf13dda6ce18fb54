// Puts the segments on the film's frame grid, and their sound on its samples: how long each plays, how runs of one
// source stay without a seam, and when a damaged source is refused.

package engine

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"cutroom/internal/base/fault"
	"cutroom/internal/film/media"
	"cutroom/internal/film/timeline"
)

// placed is a segment on the output's frame grid. The client's timeline is exact: segment k begins at the sum of the
// played lengths before it. The film has whole frames, so the two differ by up to two frames; see shift.
type placed struct {
	segment timeline.Segment
	index   int     // in the client's list
	source  *Source // never nil
	in, out time.Duration

	// start is the instant of the source, in seconds, that the first frame and the first sample show: the grid line
	// at or before in.
	start  float64
	frame  int64 // first frame in the output
	frames int64
	// base is the number of frames before the drift was corrected. The frames beyond it are a part of their own.
	base int64

	pace   *timeline.Pace // nil at a constant speed
	turned float64        // for a reversed segment: the source time, in seconds, from which it plays backwards
	mixed  []mix          // see mixes; nil in an audio-only render

	tolerance float64 // see tolerance; not set in an audio-only render
	view      view    // not set in an audio-only render
	framing   framing // not set in an audio-only render

	// begin and end are the segment's times on the client's timeline, in seconds.
	begin, end float64

	join, next timeline.Join // the transitions at the segment's two ends

	continues bool // begins exactly where the segment before it ended
	// sample is the source's sample at 48 kHz that plays at the segment's first output sample, at speed 1.
	sample int64
	// shift in samples: an item that the client places at t plays at t*48000 + shift.
	shift int64
}

func (p *placed) name() string { return fmt.Sprintf("segments[%d]", p.index) }

// layout is the picture side of a plan.
type layout struct {
	rate     media.Rational
	segments []placed
	frames   int64
}

// samples is the length of the sound.
func (l *layout) samples() int64 { return samplesAt(l.frames, l.rate) }

const (
	// cutSlack is how many seconds before a frame a trim may be and still mean that frame: trims are whole
	// milliseconds, frames are not. No trim lies exactly on its edge.
	cutSlack = 0.00137
	// coarseRate is the rate below which cuts do not snap to the source's frames: the sound would start too early.
	coarseRate = 20
	// maxDrift is how many frames the film may be ahead of or behind the client's timeline before a segment's length
	// is corrected, and maxEndDrift how many the whole film may be short. Whole milliseconds never lie exactly on the
	// edge of these limits or of roundingUp.
	maxDrift    = 0.7501
	maxEndDrift = 0.5001
	// roundingUp is added before a segment's length is cut to whole frames. A missing frame can be added as a
	// separate part, a surplus one means encoding the segment again. With 0.35, editing one of six segments changes
	// another one in 4 of 100 cases; with 0.5 it would be 28.
	roundingUp = 0.3501
	// audioGridRate is the grid of an audio-only render: a millisecond, 48 samples.
	audioGridRate = 1000
)

// layOut places the segments. It expects sources that passed checkSources.
func layOut(t timeline.Timeline, sources map[string]*Source) (*layout, error) {
	ordered, indexes := t.InOrder()
	l := &layout{rate: media.Rational{Num: audioGridRate, Den: 1}}
	// Transitions and fades count frames, so an audio-only render with them uses the film's grid.
	if v := sources[ordered[0].SourceKey].info.Video; t.OutputKind == timeline.Video || t.CountsFrames() {
		switch {
		case t.Canvas != nil && t.Canvas.FrameRate != nil:
			l.rate = media.Rational{Num: *t.Canvas.FrameRate, Den: 1}
		case v != nil:
			l.rate = canvasRate(v)
		}
	}
	for k, s := range ordered {
		p := placed{segment: s, index: indexes[k], source: sources[s.SourceKey], pace: s.Pace()}
		if err := p.trim(t.OutputKind); err != nil {
			return nil, err
		}
		l.segments = append(l.segments, p)
	}
	l.countFrames()
	l.arrange(ordered)
	return l, nil
}

// trim clips the segment's ends to the real length of its source.
func (p *placed) trim(kind timeline.OutputKind) error {
	info, s := p.source.info, p.segment
	length, claim := info.ends()
	if s.TrimStart >= length {
		if s.TrimStart < claim {
			return fault.Failedf(fault.SourceUnreadable, "segments[%d]: the source is damaged: it ends at %s of %s, before trimStartMs",
				p.index, seconds(length), seconds(claim))
		}
		if length <= 0 {
			return fault.Failedf(fault.NoMedia, "segments[%d]: the source has no pictures or sound", p.index)
		}
		return fault.Failedf(fault.NoMedia, "segments[%d]: trimStartMs is at or beyond the end of the source (%s)",
			p.index, seconds(length))
	}
	asked := cmp.Or(s.TrimEnd, math.MaxInt64)
	p.in, p.out = s.TrimStart, min(length, asked)
	if v := info.Video; v != nil && kind == timeline.Video {
		if err := damaged(p.name(), p.in, min(asked, v.ClaimedEnd), v.End); err != nil {
			return err
		}
	}
	if a := info.Audio; a != nil {
		return damaged(p.name(), p.in, min(asked, a.ClaimedEnd), a.End)
	}
	return nil
}

// damaged returns a fault if the file promises a stream for [in, promised) and the stream ends clearly before that.
func damaged(user string, in, promised, end time.Duration) error {
	wanted, got := promised-in, max(0, end-in)
	if !media.CutOff(got, wanted) {
		return nil
	}
	return damageFault(user, got, wanted)
}

func damageFault(user string, got, wanted time.Duration) error {
	return fault.Failedf(fault.SourceUnreadable, "%s: the source is damaged: only %s of %s could be decoded",
		user, seconds(got), seconds(wanted))
}

// countFrames gives every segment its frames, and its place in a film without transitions.
//
// A run is a sequence of segments that continue the same source. Cutting a source into such pieces must not change
// the film, so within a run each segment ends at the grid line where the next begins. Other segments have their
// played length in whole frames, which depends only on the segment, so cached parts stay valid when a neighbour is
// edited. A segment gets one frame more or, rarely, less if the rounding would add up to more than maxDrift.
func (l *layout) countFrames() {
	rate := l.rate.Float()
	var anchor float64 // grid line 0 of the run, source seconds
	var runStart int   // first segment of the run
	var grid int64     // grid line at which the segment begins
	var run float64    // what the client's timeline has played of the run, in frames
	var ideal float64  // position on the client's timeline, in frames
	for k := range l.segments {
		p := &l.segments[k]
		speed := p.segment.Speed
		step := speed / rate // of the grid, in source seconds
		p.continues = k > 0 && follows(&l.segments[k-1], p)
		if !p.continues {
			runStart, run = k, 0
			anchor = p.anchor(rate)
			grid = gridLine(p.in.Seconds(), anchor, step)
		}
		p.frame = l.frames
		p.begin = ideal / rate
		length := (p.out - p.in).Seconds() / step
		if p.pace != nil {
			length = p.pace.FilmTime((p.out - p.in).Seconds()) * rate
		}
		p.start = anchor + float64(grid)*step
		ideal += length
		run += length
		last := k == len(l.segments)-1
		if !last && follows(p, &l.segments[k+1]) {
			p.frames = max(0, gridLine(p.out.Seconds(), anchor, step)-grid)
			p.base = p.frames
		} else {
			p.count(run-float64(l.frames-l.segments[runStart].frame), ideal, last)
		}
		if p.segment.Reverse {
			p.turn(l.rate)
		}
		grid += p.frames
		l.frames += p.frames
		p.end = ideal / rate
	}
}

// arrange overlaps segments where their transitions do, and places their sound.
func (l *layout) arrange(ordered []timeline.Segment) {
	frames := make([]int64, len(l.segments))
	for k, p := range l.segments {
		frames[k] = p.frames
	}
	places, length := timeline.Arrange(ordered, frames, l.rate.Num, l.rate.Den)
	run := 0 // first segment of the run
	for k, at := range places {
		p := &l.segments[k]
		earlier := float64(p.frame-at.Begin) / l.rate.Float()
		p.begin, p.end = p.begin-earlier, p.end-earlier
		p.frame, p.join, p.next = at.Begin, at.In, at.Out
		p.continues = p.continues && p.join.Overlap() == 0
		if !p.continues {
			run = k
		}
		l.placeAudio(p, &l.segments[run])
	}
	l.frames = length
}

// count sets the frames of a run's last segment. length is the rest of the run, ideal the run's end on the client's
// timeline, both in frames.
func (p *placed) count(length, ideal float64, last bool) {
	p.frames = max(0, int64(math.Floor(length+roundingUp)))
	for p.frames > 0 && float64(p.frame+p.frames)-ideal > maxDrift {
		p.frames--
	}
	p.base = p.frames
	allowed := maxDrift
	if last {
		allowed = maxEndDrift
	}
	for ideal-float64(p.frame+p.frames) > allowed || last && p.frame+p.frames == 0 { // a film has at least one frame
		p.frames++
	}
}

// placeAudio derives the segment's place in the sound from the first segment of its run, whose sound has no seams.
func (l *layout) placeAudio(p, run *placed) {
	first := samplesAt(run.frame, l.rate)
	if p == run {
		p.sample = int64(math.Round(p.start * sampleRate))
		ahead := (p.in.Seconds() - p.start) / p.segment.Speed * sampleRate
		if p.segment.Speed == 1 {
			ahead = float64(samplesOf(p.in) - p.sample)
		}
		if p.segment.Reverse {
			_, speed := p.at(0, l.rate)
			ahead = (p.turned - p.out.Seconds()) / speed * sampleRate
		}
		p.shift = first + int64(math.Round(ahead-p.begin*sampleRate))
		return
	}
	p.sample = run.sample + samplesAt(p.frame, l.rate) - first
	p.shift = run.shift
}

// anchor returns a grid line of the source: at speed 1 its first frame, at other speeds, which skip frames, the frame
// in which the trim starts. If cuts do not snap, it is the trim start itself.
func (p *placed) anchor(rate float64) float64 {
	info := p.source.info
	if info.Video == nil || rate < coarseRate || rate == audioGridRate || p.pace != nil {
		return p.in.Seconds()
	}
	first := 0
	if p.segment.Speed != 1 {
		first = info.Video.visibleAt(p.in.Seconds()+cutSlack, info.Zero)
	}
	return info.Video.start(first, info.Zero)
}

// gridLine returns the last grid line at or before t that lies in the source.
func gridLine(t, anchor, step float64) int64 {
	slack := min(cutSlack, step/4)
	line := math.Floor((t - anchor + slack) / step)
	return int64(max(line, math.Ceil((0-anchor-slack)/step)))
}

// follows reports whether b continues the same source where a ends, forwards and at one constant speed.
func follows(a, b *placed) bool {
	return !a.segment.Reverse && !b.segment.Reverse && a.pace == nil && b.pace == nil &&
		a.source == b.source && a.segment.Speed == b.segment.Speed && a.out == b.in
}
