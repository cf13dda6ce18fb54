// Places every sound of the film: the segments' own, music and stems, with the spans in which directives silence the
// original.

package engine

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"cutroom/internal/base/fault"
	"cutroom/internal/film/audio"
	"cutroom/internal/film/media"
	"cutroom/internal/film/timeline"
)

// planAudio places every sound and decides what to decode and stretch.
func (p *Plan) planAudio(t timeline.Timeline, l *layout, sources map[string]*Source) error {
	clips, err := clipAudio(t, sources, p.Samples)
	if err != nil {
		return err
	}
	uses := joined(slices.Concat(segmentAudio(l, !hasVoice(t)), clips, stemAudio(t, l, sources)))
	mute(uses, muteSpans(t, l))
	p.Audio = planDecodes(uses)
	stretches := map[string]*stretchedAudio{}
	for _, u := range uses {
		sound := holding(p.Audio, u)
		file, first := sound.File, int64(math.Round(u.from))-sound.From
		if u.made() {
			stretch := newStretch(sound, u)
			if known := stretches[stretch.Key]; known != nil {
				stretch = known
			} else {
				stretch.File = fmt.Sprintf("stretch%03d.f32", len(p.Stretches))
				stretches[stretch.Key] = stretch
				p.Stretches = append(p.Stretches, stretch)
			}
			file, first = stretch.File, 0
		}
		for _, region := range u.regions {
			region.File, region.Offset = file, first+region.Start-u.start
		}
		p.Regions = append(p.Regions, u.regions...)
	}
	return nil
}

// segmentAudio returns one use per segment. voice means that the segments' sound is the film's voice.
func segmentAudio(l *layout, voice bool) []audioUse {
	var uses []audioUse
	total, run := l.samples(), 0
	for k := range l.segments {
		p := &l.segments[k]
		if !p.continues {
			run = k
		}
		if p.source.info.Audio == nil || p.frames == 0 {
			continue
		}
		u := audioUse{source: p.source, from: p.start * sampleRate, tempo: p.segment.Speed, line: line{segmentLine, run}}
		if u.tempo == 1 {
			u.from = float64(p.sample)
		}
		u.pace = p.pace
		u.start = samplesAt(p.frame, l.rate)
		u.length = samplesAt(p.frame+p.frames, l.rate) - u.start
		if p.segment.Reverse {
			u.from, u.turned, u.last = 0, true, int64(math.Round(p.turned*sampleRate))-1
			if p.plain() { // the same samples as forwards
				u.last = p.sample + u.length - 1
			}
			if n := len(uses); n > 0 && u.readsOnBackwards(uses[n-1]) {
				u.line = uses[n-1].line
			}
		}
		piece := newRegion(fmt.Sprintf("segments[%d]", p.index), u.start, u.start+u.length, p.segment.Volume)
		piece.Curves, piece.voice = curves(p.segment.Points, u.start), voice
		if piece.Start > 0 {
			piece.FadeIn.Length = seamFade
		}
		if piece.End < total {
			piece.FadeOut.Length = seamFade
		}
		piece.join(p, l.rate)
		u.regions = []*region{piece}
		uses = append(uses, u)
	}
	crossCuts(uses)
	return uses
}

// mute silences the segments' own sound in the spans.
func mute(uses []audioUse, spans []audio.Mute) {
	for _, u := range uses {
		if u.line.kind != segmentLine {
			continue
		}
		for _, region := range u.regions {
			for _, s := range spans {
				if s.Start < region.End && s.End > region.Start {
					region.Mutes = append(region.Mutes, s)
				}
			}
		}
	}
}

// clipAudio places the background music at the client's own times, because music is not tied to frames.
func clipAudio(t timeline.Timeline, sources map[string]*Source, total int64) ([]audioUse, error) {
	var uses []audioUse
	for i, c := range t.Clips {
		src := sources[c.SourceKey]
		info := src.info.Audio
		if c.SourceTrimStart >= info.End {
			return nil, fault.Failedf(fault.NoMedia,
				"bgmClips[%d]: sourceTrimStartMs is at or beyond the end of the music (%s)", i, seconds(info.End))
		}
		asked := cmp.Or(c.SourceTrimEnd, math.MaxInt64)
		if err := damaged(fmt.Sprintf("bgmClips[%d]", i), c.SourceTrimStart, min(info.ClaimedEnd, asked), info.End); err != nil {
			return nil, err
		}
		length := int64(math.Round((min(info.End, asked) - c.SourceTrimStart).Seconds() / c.Speed * sampleRate))
		if u := placeClip(c, length, asked < info.End, total); u != nil {
			u.source = src
			u.regions[0].Name = fmt.Sprintf("bgmClips[%d]", i)
			if u.line.kind == loopLine {
				u.line.run = i
			}
			uses = append(uses, *u)
		}
	}
	return uses, nil
}

// placeClip places a clip whose range plays for length samples. cutOff means that the music would continue beyond the
// range. It returns nil if the clip is not audible.
func placeClip(c timeline.Clip, length int64, cutOff bool, total int64) *audioUse {
	start, end := samplesOf(c.Start), total
	ended := c.End > 0 && samplesOf(c.End) < total // it ends by endMs, unless its range ends earlier
	if ended {
		end = samplesOf(c.End)
	}
	loops := c.Loop && length > 0 && length < end-start
	if !loops && length <= end-start {
		end, ended = start+length, cutOff
	}
	if start >= end {
		return nil
	}
	piece := newRegion("", start, end, c.Volume)
	piece.Curves, piece.ducking, piece.voice = curves(c.Points, start), c.Ducking, c.Voice
	if c.SourceTrimStart > 0 {
		piece.FadeIn.Length = seamFade
	}
	if ended {
		piece.FadeOut.Length = seamFade
	}
	in, out := samplesOf(c.FadeIn), samplesOf(c.FadeOut)
	if in+out > end-start { // both shrink in proportion
		in = media.MulDiv(in, end-start, in+out)
		out = min(out, end-start-in)
	}
	piece.fade(audio.Fade{Length: in}, audio.Fade{Length: out})
	u := &audioUse{from: float64(samplesOf(c.SourceTrimStart)), tempo: c.Speed, start: start, length: length,
		line: line{kind: clipLine}, regions: []*region{piece}}
	switch {
	case loops:
		u.line.kind, piece.Period = loopLine, length
	case length > end-start && c.End > 0:
		u.length = end - start
	default:
		u.length = min(length, roundUp(end-start, 10*sampleRate)) // a cached stretch still suffices after the film has grown
	}
	return u
}

const (
	// ownSlack is how many seconds of a directive's range may lie outside a run of segments to which it belongs:
	// clients round their times, some to frames.
	ownSlack = 0.04
	// endSlack is how many seconds beyond the end of a run still mean the end.
	endSlack = 0.0015
)

// runSpan is a run of segments on the client's timeline, in seconds, and in the sound.
type runSpan struct {
	begin, end float64
	span
	shift int64
}

// runs returns the runs of segments that continue each other. Those of a run have the same shift.
func (l *layout) runs() (all []runSpan) {
	for _, p := range l.segments {
		at := span{samplesAt(p.frame, l.rate), samplesAt(p.frame+p.frames, l.rate)}
		if n := len(all); n > 0 && p.continues {
			all[n-1].end, all[n-1].to = p.end, at.to
			continue
		}
		all = append(all, runSpan{p.begin, p.end, at, p.shift})
	}
	return all
}

// place returns where in the film a directive's range plays, and how many samples later than the client's times that
// is. The range may be empty.
//
// A range that lies in one run of segments plays what belongs to them, so it moves with them. If it lies in two,
// because they overlap, it moves with the second. A range over several runs, such as a recording, plays through at the
// client's own times, as music does.
func (l *layout) place(r timeline.Range) (at span, shift int64) {
	runs := l.runs()
	whole := runSpan{end: runs[len(runs)-1].end, span: span{0, l.samples()}}
	from, to := r.Start.Seconds(), min(r.End.Seconds(), whole.end)
	in, most := whole, max(0, to-from-ownSlack)
	for _, run := range runs {
		if common := min(to, run.end) - max(from, run.begin); common > 0 && common >= most {
			in, most = run, common
		}
	}
	at = in.span
	switch begin := samplesOf(r.Start) + in.shift; {
	case from > in.begin:
		at.from = min(at.to, max(at.from, begin))
	case from < in.begin-endSlack:
		at.from = max(0, begin)
	}
	switch end := samplesOf(r.End) + in.shift; {
	case to < in.end:
		at.to = min(at.to, max(at.from, end))
	case to > in.end+endSlack:
		at.to = min(l.samples(), end)
	}
	return at, in.shift
}

// stemAudio places the stems of every directive.
func stemAudio(t timeline.Timeline, l *layout, sources map[string]*Source) []audioUse {
	var uses []audioUse
	for i, d := range t.Directives {
		at, shift := l.place(d.Range)
		if at.from >= at.to {
			continue
		}
		start := samplesOf(d.Range.Start) + shift
		for j, sel := range d.Selections {
			piece := newRegion(fmt.Sprintf("separationDirectives[%d].selections[%d]", i, j), at.from, at.to, sel.Volume)
			piece.Curves, piece.voice = curves(sel.Points, start), isVoice(sel)
			if at.from > 0 {
				piece.FadeIn.Length = directiveFade
			}
			if at.to < l.samples() {
				piece.FadeOut.Length = directiveFade
			}
			uses = append(uses, audioUse{
				source: sources[sel.SourceKey], from: float64(samplesOf(d.SourceOffset)) + float64(at.from-start)*d.AppliedSpeed,
				tempo: d.AppliedSpeed, line: line{kind: stemLine}, start: at.from, length: at.to - at.from, regions: []*region{piece},
			})
		}
	}
	return uses
}

// muteSpans returns the merged spans in which directives silence the segments' own sound.
func muteSpans(t timeline.Timeline, l *layout) []audio.Mute {
	var spans []span
	for _, d := range t.Directives {
		if at, _ := l.place(d.Range); d.MuteOriginal && at.from < at.to {
			spans = append(spans, at)
		}
	}
	var mutes []audio.Mute
	for _, s := range merged(spans) {
		m := audio.Mute{Start: s.from, End: s.to}
		if s.from > 0 {
			m.FadeIn = directiveFade
		}
		if s.to < l.samples() {
			m.FadeOut = directiveFade
		}
		mutes = append(mutes, m)
	}
	return mutes
}

// played returns what the mixer needs of the regions.
func played(regions []*region) []*audio.Region {
	all := make([]*audio.Region, len(regions))
	for i, r := range regions {
		all[i] = &r.Region
	}
	return all
}
