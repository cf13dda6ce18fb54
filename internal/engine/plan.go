package engine

import (
	"cmp"
	"fmt"
	"math"

	"cutroom/internal/audio"
	"cutroom/internal/fault"
	"cutroom/internal/media"
	"cutroom/internal/timeline"
)

// Plan is everything a render will do, decided before anything is done.
type Plan struct {
	Kind    timeline.OutputKind
	Profile Profile
	Canvas  Canvas
	Frames  int64
	Samples int64

	Parallel int // passes at once

	Parts     []*videoPart // each once, in the order of first use; none for sound alone
	Sequence  []*videoPart // what plays after what; a part may occur more than once
	Audio     []*decodedAudio
	Stretches []*stretchedAudio
	Regions   []*audio.Region
}

// Canvas is the picture every segment is brought to.
type Canvas struct {
	Width, Height int // even; 0 for sound alone
	Rate          media.Rational
}

// Profile is what a quality means to the encoders.
type Profile struct {
	CRF          int
	Preset       string
	AudioBitrate string
}

// profiles is SPEC's table.
var profiles = map[timeline.Quality]Profile{
	timeline.High:   {CRF: 20, Preset: "slow", AudioBitrate: "192k"},
	timeline.Medium: {CRF: 23, Preset: "fast", AudioBitrate: "192k"},
	timeline.Low:    {CRF: 28, Preset: "fast", AudioBitrate: "128k"},
}

// audioOnlyBitrate is the bitrate of outputKind audio, whatever the quality.
const audioOnlyBitrate = "192k"

// makePlan turns a validated timeline and what is known of its sources into a
// Plan. It is pure: no file is touched and equal arguments give equal plans. A
// *fault.Error names the segment, clip or directive that cannot be rendered.
func makePlan(t timeline.Timeline, sources map[string]*Source, limits Limits, machine Machine) (*Plan, error) {
	if err := checkSources(t, sources, limits); err != nil {
		return nil, err
	}
	l, err := layOut(t, sources)
	if err != nil {
		return nil, err
	}
	p := &Plan{Kind: t.OutputKind, Profile: profiles[t.Quality], Canvas: Canvas{Rate: l.rate}, Frames: l.frames, Samples: l.samples()}
	if d := framesDuration(l.frames, l.rate); d > limits.MaxOutputDuration {
		return nil, fault.Failedf(fault.SourceTooLarge, "segments: the film would last %s, at most %s are accepted", seconds(d), seconds(limits.MaxOutputDuration))
	}
	if t.OutputKind == timeline.Video {
		p.Canvas.Width, p.Canvas.Height = canvasSize(l.segments[0].source.info.Video)
		if err := p.planVideo(l, machine); err != nil {
			return nil, err
		}
		if err := limits.checkWork(p); err != nil {
			return nil, err
		}
	} else {
		p.Profile.AudioBitrate = audioOnlyBitrate
	}
	if err := p.planAudio(t, l, sources); err != nil {
		return nil, err
	}
	p.setParallelism(machine)
	return p, nil
}

// work is the pixels of the film, and of every source's frame as often as it is
// decoded; decoded counts the latter frames.
func (p *Plan) work() (pixels, decoded int64) {
	pixels = int64(p.Canvas.Width) * int64(p.Canvas.Height) * p.Frames
	for _, v := range p.Parts {
		n := v.decodes()
		decoded += n
		pixels += int64(v.source.info.Video.Width) * int64(v.source.info.Video.Height) * n
	}
	return pixels, decoded
}

// setParallelism decides how many passes run at once.
func (p *Plan) setParallelism(machine Machine) {
	var largest int64
	for _, v := range p.Parts {
		largest = max(largest, v.memory(2))
	}
	threads := 0
	p.Parallel, threads = machine.encoders(largest)
	for _, v := range p.Parts {
		v.threads = threads
	}
}

// use is a field of a timeline that names a source.
type use struct {
	key, name    string // name is the field's: "segments[0]"
	noun         string // what the client calls the source there
	video, audio bool   // what the source must have
}

// uses lists the fields that name sources, in the order in which they are checked.
func uses(t timeline.Timeline) []use {
	var all []use
	for i, s := range t.Segments {
		all = append(all, use{key: s.SourceKey, name: fmt.Sprintf("segments[%d]", i), noun: "file", video: t.OutputKind == timeline.Video})
	}
	for i, c := range t.Clips {
		all = append(all, use{key: c.SourceKey, name: fmt.Sprintf("bgmClips[%d]", i), noun: "file", audio: true})
	}
	for i, d := range t.Directives {
		for j, s := range d.Selections {
			all = append(all, use{key: s.SourceKey, name: fmt.Sprintf("separationDirectives[%d].selections[%d]", i, j), noun: "stem", audio: true})
		}
	}
	return all
}

// checkSources makes sure that each use can be served.
func checkSources(t timeline.Timeline, sources map[string]*Source, limits Limits) error {
	for _, u := range uses(t) {
		s := sources[u.key]
		if s == nil {
			return fmt.Errorf("plan: no file for %s (%s)", u.name, u.key)
		}
		if err := limits.check(s.info, u.name); err != nil {
			return err
		}
		if u.video && s.info.Video == nil {
			return fault.Failedf(fault.NoMedia, "%s: the %s has no video", u.name, u.noun)
		}
		if u.audio && s.info.Audio == nil {
			return fault.Failedf(fault.NoMedia, "%s: the %s has no sound", u.name, u.noun)
		}
	}
	return nil
}

const (
	// seamFade softens a cut between sounds that do not belong together: 2 ms are
	// too short to hear and long enough to take the click away.
	seamFade = 2 * sampleRate / 1000
	// directiveFade is the crossfade at the ends of a directive's range: 5 ms.
	// Both sides ramp linearly, so a stem that equals what it replaces passes
	// unchanged.
	directiveFade = 5 * sampleRate / 1000
)

// audioUse is one continuous stretch of a source's sound that is needed, before
// anything is decided about decoding.
type audioUse struct {
	source *Source
	from   float64 // first needed sample of the source, at 48 kHz
	tempo  float64
	start  int64 // output sample at which from plays
	length int64 // output samples
	// regions play the stretch; several where the volume changes on the way.
	regions []*audio.Region
}

// readOn softens the change of volume from a region to the one that plays on from
// its end, by a crossfade of seamFade over their border. Where the volumes are equal
// they pass unchanged.
func readOn(before, behind *audio.Region) {
	before.FadeOut, behind.FadeIn = 0, 0
	if before.Volume == behind.Volume {
		return
	}
	half := min(seamFade, before.End-before.Start, behind.End-behind.Start) / 2
	before.End, before.FadeOut = before.End+half, 2*half
	behind.Start, behind.FadeIn = behind.Start-half, 2*half
}

// useEnd is where a use ends, for what reads on from it.
type useEnd struct {
	source *Source
	tempo  float64
	at     int64 // in the output
}

// joined makes one use of those that read on from each other, as pieces of music
// do that was split to change its volume, and stems of neighbouring directives: each
// fading by itself would leave a gap.
func joined(uses []audioUse) []audioUse {
	var all []audioUse
	ends := map[useEnd]int{}
	for _, u := range uses {
		end := useEnd{u.source, u.tempo, u.start + u.length}
		i, found := ends[useEnd{u.source, u.tempo, u.start}]
		if !found || math.Abs(all[i].from+float64(all[i].length)*u.tempo-u.from) >= 1 {
			ends[end] = len(all)
			all = append(all, u)
			continue
		}
		before := &all[i]
		readOn(before.regions[len(before.regions)-1], u.regions[0])
		before.regions = append(before.regions, u.regions...)
		before.length += u.length
		ends[end] = i
	}
	return all
}

// planAudio places every sound and decides what is decoded and stretched.
func (p *Plan) planAudio(t timeline.Timeline, l *layout, sources map[string]*Source) error {
	uses := segmentAudio(l, muteSpans(t, l))
	clips, err := clipAudio(t, sources, p.Samples)
	if err != nil {
		return err
	}
	uses = append(uses, joined(clips)...)
	uses = append(uses, joined(stemAudio(t, l, sources))...)
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

// segmentAudio returns one use per run of segments that read on in their
// source without a seam, with a region per change of volume.
func segmentAudio(l *layout, mutes []audio.Mute) []audioUse {
	var uses []audioUse
	open := false // the last use may grow
	for k := range l.segments {
		p := &l.segments[k]
		if !p.continues {
			open = false
		}
		if p.source.info.Audio == nil || p.frames == 0 {
			continue
		}
		start, end := samplesAt(p.frame, l.rate), samplesAt(p.frame+p.frames, l.rate)
		if !open {
			u := audioUse{source: p.source, from: p.start * sampleRate, tempo: p.segment.Speed, start: start}
			if u.tempo == 1 {
				u.from = float64(p.sample)
			}
			uses = append(uses, u)
			open = true
		}
		u := &uses[len(uses)-1]
		u.length = end - u.start
		if n := len(u.regions); n > 0 && u.regions[n-1].Volume == p.segment.Volume {
			u.regions[n-1].End = end
			continue
		}
		region := &audio.Region{Name: fmt.Sprintf("segments[%d]", p.index), Start: start, End: end, Volume: p.segment.Volume}
		if n := len(u.regions); n > 0 {
			readOn(u.regions[n-1], region)
		} else if start > 0 {
			region.FadeIn = seamFade
		}
		u.regions = append(u.regions, region)
	}
	total := l.samples()
	for _, u := range uses {
		if last := u.regions[len(u.regions)-1]; last.End < total {
			last.FadeOut = seamFade
		}
		for _, region := range u.regions {
			region.Mutes = overlapping(mutes, region.Start, region.End)
		}
	}
	return uses
}

// overlapping returns the spans that touch [start, end).
func overlapping(spans []audio.Mute, start, end int64) []audio.Mute {
	var hit []audio.Mute
	for _, s := range spans {
		if s.Start < end && s.End > start {
			hit = append(hit, s)
		}
	}
	return hit
}

// clipAudio places the background music. Times are the client's own: music is
// laid under the film, not tied to a frame.
func clipAudio(t timeline.Timeline, sources map[string]*Source, total int64) ([]audioUse, error) {
	var uses []audioUse
	for i, c := range t.Clips {
		src := sources[c.SourceKey]
		info := src.info.Audio
		if c.SourceTrimStart >= info.End {
			return nil, fault.Failedf(fault.NoMedia, "bgmClips[%d]: sourceTrimStartMs lies at or beyond the end of the music (%s)", i, seconds(info.End))
		}
		asked := cmp.Or(c.SourceTrimEnd, math.MaxInt64)
		if err := damaged(fmt.Sprintf("bgmClips[%d]", i), c.SourceTrimStart, min(info.ClaimedEnd, asked), info.End); err != nil {
			return nil, err
		}
		end := min(info.End, asked)
		start := samplesOf(c.Start)
		if start >= total {
			continue
		}
		length := int64(math.Round((end - c.SourceTrimStart).Seconds() / c.Speed * sampleRate))
		region := &audio.Region{Name: fmt.Sprintf("bgmClips[%d]", i), Start: start, End: start + min(length, total-start), Volume: c.Volume}
		if region.End <= region.Start {
			continue
		}
		if c.SourceTrimStart > 0 {
			region.FadeIn = seamFade
		}
		if asked < info.End && start+length <= total {
			region.FadeOut = seamFade
		}
		uses = append(uses, audioUse{
			source: src, from: float64(samplesOf(c.SourceTrimStart)), tempo: c.Speed,
			start: start, length: min(length, roundUp(total-start, 10*sampleRate)), regions: []*audio.Region{region},
		})
	}
	return uses, nil
}

// roundUp returns the next multiple of unit. A stretched clip is made a little
// longer than the film, so that it is found again after the film grew.
func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

// shiftedRange is the part of a directive's range that lies in segments of one
// shift: within it, the client's times and the film's differ by a constant.
type shiftedRange struct {
	span
	shift int64
}

// pieces cuts a directive's range at the segments' seams and moves each piece
// along with the segment it belongs to.
func (l *layout) pieces(r timeline.Range) []shiftedRange {
	var out []shiftedRange
	from, to := r.Start.Seconds(), r.End.Seconds()
	for k := range l.segments {
		p := &l.segments[k]
		first, last := samplesAt(p.frame, l.rate), samplesAt(p.frame+p.frames, l.rate)
		if p.begin >= to || p.end <= from || first == last {
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
				region := &audio.Region{Name: fmt.Sprintf("separationDirectives[%d].selections[%d]", i, j), Start: at.from, End: at.to, Volume: sel.Volume}
				region.FadeIn, region.FadeOut = seamFade, seamFade
				if n == 0 {
					region.FadeIn = directiveFade
				}
				if n == len(pieces)-1 {
					region.FadeOut = directiveFade
				}
				if at.from == 0 {
					region.FadeIn = 0
				}
				if at.to == total {
					region.FadeOut = 0
				}
				lead := float64(at.from - at.shift - samplesOf(d.Range.Start))
				uses = append(uses, audioUse{
					source: sources[sel.SourceKey], from: float64(samplesOf(d.SourceOffset)) + lead*d.AppliedSpeed,
					tempo: d.AppliedSpeed, start: at.from, length: at.to - at.from, regions: []*audio.Region{region},
				})
			}
		}
	}
	return uses
}

// muteSpans returns where the segments' own sound is silenced, merged over all
// directives. Seams inside a directive's range are bridged.
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
