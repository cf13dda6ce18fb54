package engine

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"cutroom/internal/audio"
	"cutroom/internal/fault"
	"cutroom/internal/media"
	"cutroom/internal/timeline"
)

// planAudio places every sound and decides what to decode and stretch.
func (p *Plan) planAudio(t timeline.Timeline, l *layout, sources map[string]*Source) error {
	if err := checkPieces(t, l); err != nil {
		return err
	}
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
		if u.tempo != 1 {
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
		u.start = samplesAt(p.frame, l.rate)
		u.length = samplesAt(p.frame+p.frames, l.rate) - u.start
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

// placeClip places a clip whose range plays for length samples. cutOff means that the music would continue
// after it. It returns nil if the clip is not audible.
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

// shiftedRange is the part of a directive's range in segments with the same shift, see placed.
type shiftedRange struct {
	span
	shift int64
}

// pieces cuts a directive's range where segments meet and moves each piece with its segment. If two segments overlap,
// timeline.Arrange decides to which one a piece belongs.
func (l *layout) pieces(r timeline.Range) []shiftedRange {
	var out []shiftedRange
	from, to := r.Start.Seconds(), r.End.Seconds()
	for k := range l.segments {
		p := &l.segments[k]
		first, last := samplesAt(p.frame, l.rate), samplesAt(p.frame+p.frames, l.rate)
		if p.begin >= to || p.end <= from || k+1 < len(l.segments) && l.segments[k+1].begin <= from {
			continue
		}
		if n := len(out); n > 0 {
			first = max(first, out[n-1].to)
		}
		if first >= last {
			continue
		}
		s := shiftedRange{span{first, last}, p.shift}
		if from > p.begin {
			s.from = min(last, max(first, samplesOf(r.Start)+p.shift))
		}
		if to < p.end {
			s.to = min(last, max(first, samplesOf(r.End)+p.shift))
		}
		if s.from >= s.to {
			continue
		}
		if n := len(out); n > 0 && out[n-1].to == s.from && out[n-1].shift == s.shift {
			out[n-1].to = s.to
			continue
		}
		out = append(out, s)
	}
	return out
}

// stemAudio places the stems of every directive.
func stemAudio(t timeline.Timeline, l *layout, sources map[string]*Source) []audioUse {
	var uses []audioUse
	total := l.samples()
	for i, d := range t.Directives {
		pieces := l.pieces(d.Range)
		for n, at := range pieces {
			for j, sel := range d.Selections {
				piece := newRegion(fmt.Sprintf("separationDirectives[%d].selections[%d]", i, j), at.from, at.to, sel.Volume)
				piece.Curves = curves(sel.Points, samplesOf(d.Range.Start)+at.shift)
				piece.voice = isVoice(sel)
				piece.FadeIn.Length, piece.FadeOut.Length = seamFade, seamFade
				if n == 0 {
					piece.FadeIn.Length = directiveFade
				}
				if n == len(pieces)-1 {
					piece.FadeOut.Length = directiveFade
				}
				if at.from == 0 {
					piece.FadeIn.Length = 0
				}
				if at.to == total {
					piece.FadeOut.Length = 0
				}
				lead := float64(at.from - at.shift - samplesOf(d.Range.Start))
				uses = append(uses, audioUse{
					source: sources[sel.SourceKey], from: float64(samplesOf(d.SourceOffset)) + lead*d.AppliedSpeed,
					tempo: d.AppliedSpeed, line: line{kind: stemLine}, start: at.from, length: at.to - at.from, regions: []*region{piece},
				})
			}
		}
	}
	return uses
}

// muteSpans returns the merged spans in which directives silence the segments' own sound.
func muteSpans(t timeline.Timeline, l *layout) []audio.Mute {
	var spans []span
	for _, d := range t.Directives {
		if !d.MuteOriginal {
			continue
		}
		for _, at := range l.pieces(d.Range) {
			spans = append(spans, at.span)
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

// played returns what the mixer plays of some regions.
func played(regions []*region) []*audio.Region {
	all := make([]*audio.Region, len(regions))
	for i, r := range regions {
		all[i] = &r.Region
	}
	return all
}
