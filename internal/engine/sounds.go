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

const (
	// seamFade softens a cut between unrelated sounds. 2 ms are too short to hear and
	// long enough to remove the click.
	seamFade = 2 * sampleRate / 1000
	// directiveFade is the length in samples of the cross-fade at the ends of a directive's range: 5 ms. Both
	// sides ramp linearly, so a stem that equals what it replaces passes unchanged.
	directiveFade = 5 * sampleRate / 1000
)

// region is a range of the mix. What it plays is set after planDecodes.
type region struct {
	audio.Region
	// keepsIn and keepsOut protect the fades that the client asked for: readOn does not
	// replace them.
	keepsIn, keepsOut bool
	ducking           *timeline.Ducking // nil if voices do not duck the region
	voice             bool              // ducks the music
}

// soundsLike reports whether two regions have the same gain wherever both play.
func (r *region) soundsLike(b *region) bool {
	return r.Volume == b.Volume && len(r.Curves) == 0 && len(b.Curves) == 0 && r.ducking == nil && b.ducking == nil && r.voice == b.voice
}

// audioUse is one continuous range of a source's sound that the timeline plays. The plan
// decides later how to decode it.
type audioUse struct {
	source *Source
	from   float64 // first needed sample of the source, at 48 kHz
	tempo  float64
	start  int64 // output sample at which from plays
	length int64 // output samples
	line   line
	// regions play the range; there are several if the gain changes.
	regions []*region
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

// readOn joins a region to the one that continues it; both have seam fades there. If the gain changes, a
// cross-fade of seamFade softens the change. If the gains are equal, the sound passes unchanged.
func (u *audioUse) readOn(behind *region) {
	before := u.regions[len(u.regions)-1]
	switch {
	case before.keepsOut || behind.keepsIn:
	case before.soundsLike(behind):
		before.End, before.FadeOut, before.keepsOut = behind.End, behind.FadeOut, behind.keepsOut
		return
	default:
		half := min(seamFade, before.End-before.Start, behind.End-behind.Start) / 2
		before.End, before.FadeOut = before.End+half, audio.Fade{Length: 2 * half}
		behind.Start, behind.FadeIn = behind.Start-half, audio.Fade{Length: 2 * half}
	}
	u.regions = append(u.regions, behind)
}

// useEnd is the lookup key for the use that another one continues.
type useEnd struct {
	line   line
	source *Source
	tempo  float64
	at     int64 // output sample
}

// joined merges uses that continue each other: segments cut from one take, music that was
// split to change its volume, and stems of neighbouring directives. If each faded by
// itself, there would be a gap.
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

// planAudio places every sound and decides what to decode and stretch.
func (p *Plan) planAudio(t timeline.Timeline, l *layout, sources map[string]*Source) error {
	if err := checkPieces(t, l); err != nil {
		return err
	}
	clips, err := clipAudio(t, sources, p.Samples)
	if err != nil {
		return err
	}
	uses := joined(slices.Concat(segmentAudio(l), clips, stemAudio(t, l, sources)))
	mute(uses, muteSpans(t, l))
	if !hasVoice(t) {
		for _, u := range uses {
			for _, region := range u.regions {
				region.voice = u.line.kind == segmentLine
			}
		}
	}
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

// segmentAudio returns one use per segment. Within a run, uses follow each other without a seam.
func segmentAudio(l *layout) []audioUse {
	var uses []audioUse
	total, run := l.samples(), 0
	var first *placed // the first of the run's segments with sound
	for k := range l.segments {
		p := &l.segments[k]
		if !p.continues {
			run, first = k, nil
		}
		if p.source.info.Audio == nil || p.frames == 0 {
			continue
		}
		if first == nil {
			first = p
		}
		u := audioUse{source: p.source, from: first.start * sampleRate, tempo: p.segment.Speed, line: line{segmentLine, run}}
		if u.tempo == 1 {
			u.from = float64(first.sample)
		}
		u.start = samplesAt(p.frame, l.rate)
		u.length = samplesAt(p.frame+p.frames, l.rate) - u.start
		piece := newRegion(fmt.Sprintf("segments[%d]", p.index), u.start, u.start+u.length, p.segment.Volume)
		piece.Curves = curves(p.segment.Points, u.start)
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
	return uses
}

// join fades a segment's sound over the frames of its transitions: an equal-power
// cross-fade where it overlaps its neighbour's sound, and a fade to or from silence
// elsewhere.
func (r *region) join(p *placed, rate media.Rational) {
	samples := func(from, to int64) int64 { return samplesAt(to, rate) - samplesAt(from, rate) }
	end := p.frame + p.frames
	if n := p.join.Overlap(); n > 0 {
		r.FadeIn, r.keepsIn = audio.Fade{Length: samples(p.frame, p.frame+n), Shape: audio.Power}, true
	} else if n := p.join.FadeIn(); n > 0 {
		r.FadeIn, r.keepsIn = audio.Fade{Length: samples(p.frame, p.frame+n)}, true
	}
	if n := p.next.Overlap(); n > 0 {
		r.FadeOut, r.keepsOut = audio.Fade{Length: samples(end-n, end), Shape: audio.Power}, true
	} else if n := p.next.FadeOut(); n > 0 {
		r.FadeOut, r.keepsOut = audio.Fade{Length: samples(end-n, end)}, true
	}
}

func newRegion(name string, start, end int64, volume float64) *region {
	return &region{Region: audio.Region{Name: name, Start: start, End: end, Envelope: audio.Envelope{Volume: volume}}}
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

// clipAudio places the background music at the client's own times, because music is not
// tied to frames.
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
	piece.fade(samplesOf(c.FadeIn), samplesOf(c.FadeOut))
	u := &audioUse{from: float64(samplesOf(c.SourceTrimStart)), tempo: c.Speed, start: start, length: length,
		line: line{kind: clipLine}, regions: []*region{piece}}
	switch {
	case loops:
		u.line.kind, piece.Period = loopLine, length
	case length > end-start && c.End > 0:
		u.length = end - start
	default:
		u.length = min(length, roundUp(end-start, 10*sampleRate))
	}
	return u
}

// fade gives the region the fades that the client requested. If both together are longer than the region, both
// shrink in proportion.
func (r *region) fade(in, out int64) {
	if length := r.End - r.Start; in+out > length {
		in = media.MulDiv(in, length, in+out)
		out = min(out, length-in)
	}
	if in > 0 {
		r.FadeIn, r.keepsIn = audio.Fade{Length: in}, true
	}
	if out > 0 {
		r.FadeOut, r.keepsOut = audio.Fade{Length: out}, true
	}
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

// roundUp returns n rounded up to a multiple of unit. A stretched clip is made a little longer than the film,
// so that the cached one is still long enough after the film has grown.
func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

// shiftedRange is the part of a directive's range in segments with the same shift: within
// it, the client's times and the film's times differ by a constant.
type shiftedRange struct {
	span
	shift int64
}

// pieces cuts a directive's range where segments meet and moves each piece with its segment. If two segments
// overlap, timeline.Arrange decides to which one a piece belongs.
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
// It bridges the seams inside a directive's range.
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

// mix returns the regions that the mixer plays.
func (p *Plan) mix() []*audio.Region {
	all := make([]*audio.Region, len(p.Regions))
	for i, r := range p.Regions {
		all[i] = &r.Region
	}
	return all
}
