// The plan of a render: canvas and encoder settings, the checks of the sources, and the calls that plan pictures and
// sound. It touches no file.

package engine

import (
	"fmt"

	"cutroom/internal/base/fault"
	"cutroom/internal/film/audio"
	"cutroom/internal/film/media"
	"cutroom/internal/film/timeline"
)

// Plan is everything that a render will do, decided before it starts.
type Plan struct {
	Kind    timeline.OutputKind
	Profile Profile
	Canvas  Canvas
	Frames  int64
	Samples int64

	Parallel int // encoders at once; 0 in an audio-only render

	Parts     []*videoPart // each once, in the order of first use; none in an audio-only render
	Sequence  []*videoPart // in playing order; a part may occur more than once
	Audio     []*decodedAudio
	Stretches []*stretchedAudio
	Regions   []*region
	Gain      audio.Curve // of the whole mix, before loudness and limiter
}

// Canvas is the picture format of the whole film.
type Canvas struct {
	Width, Height int // even; 0 for an audio-only render
	Rate          media.Rational
}

func (c Canvas) pixels() int64 { return int64(c.Width) * int64(c.Height) }

// Profile holds the encoder settings of a quality.
type Profile struct {
	CRF          int
	Preset       string
	AudioBitrate string
}

// profiles are the qualities of the API.
var profiles = map[timeline.Quality]Profile{
	timeline.High:   {CRF: 20, Preset: "slow", AudioBitrate: "192k"},
	timeline.Medium: {CRF: 23, Preset: "fast", AudioBitrate: "192k"},
	timeline.Low:    {CRF: 28, Preset: "fast", AudioBitrate: "128k"},
}

// makePlan turns a validated timeline and its analysed sources into a Plan. It is pure. A *fault.Error names the
// segment, clip or directive that cannot be rendered.
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
		return nil, fault.Failedf(fault.SourceTooLarge, "segments: the film would last %s, at most %s are accepted",
			seconds(d), seconds(limits.MaxOutputDuration))
	}
	ends := filmEnds(t, l)
	p.Gain = endGain(ends, l.rate)
	if t.OutputKind == timeline.Video {
		if err := l.setViews(); err != nil {
			return nil, err
		}
		p.Canvas.Width, p.Canvas.Height = canvasSize(l.segments[0].view, t.Canvas)
		if err := limits.checkCanvas(p.Canvas, t.Canvas); err != nil {
			return nil, err
		}
		if err := p.planVideo(t, l, ends, machine); err != nil {
			return nil, err
		}
		if err := limits.checkWork(p); err != nil {
			return nil, err
		}
		var threads int
		p.Parallel, threads = machine.encoders(largestMemory(p.Parts, 2))
		for _, v := range p.Parts {
			v.threads = threads
		}
	} else {
		p.Profile.AudioBitrate = "192k" // whatever the quality
	}
	if err := p.planAudio(t, l, sources); err != nil {
		return nil, err
	}
	if err := limits.checkSound(p); err != nil {
		return nil, err
	}
	return p, nil
}

// work counts the pixels of all pictures drawn and of every source frame each time it is decoded. The second picture
// of a dissolve or of a blend and a blurred background are drawn as well, and a moving window draws the canvas again.
func (p *Plan) work() (pixels, drawn, decoded int64) {
	drawn = p.Frames
	for _, v := range p.Parts {
		drawn += v.Frames * int64(len(v.shots)-1)
		for _, s := range v.shots {
			n := s.decodes()
			decoded += n
			pixels += s.source.info.Video.pixels() * n
			if s.framing.blur {
				drawn += s.frames
			}
			if s.moves != nil {
				drawn += s.frames
			}
			if blends(s.mixes) {
				drawn += s.frames
			}
		}
	}
	return pixels + p.Canvas.pixels()*drawn, drawn, decoded
}

// largestMemory returns the memory of the most expensive part.
func largestMemory(parts []*videoPart, threads int) (largest int64) {
	for _, v := range parts {
		largest = max(largest, v.memory(threads))
	}
	return largest
}

// use is a field of a timeline that names a source.
type use struct {
	key, name    string // name is the field: "segments[0]"
	noun         string // the client's word for the source there
	video, audio bool   // the streams that the source must have
	heard        bool   // its sound plays, if it has any
}

// uses lists the fields that name sources, in the order in which they are checked.
func uses(t timeline.Timeline) []use {
	var all []use
	for i, s := range t.Segments {
		all = append(all, use{key: s.SourceKey, name: fmt.Sprintf("segments[%d]", i), noun: "file", video: t.OutputKind == timeline.Video,
			heard: s.Volume > 0})
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

// checkSources checks that every source stays within the limits and has the picture or sound that the timeline
// uses.
func checkSources(t timeline.Timeline, sources map[string]*Source, limits Limits) error {
	for _, u := range uses(t) {
		s := sources[u.key]
		if err := limits.check(s.info, u.name); err != nil {
			return err
		}
		if u.video && s.info.Unshown != "" {
			return fault.Failedf(fault.SourceUnreadable, "%s: the %s %s", u.name, u.noun, s.info.Unshown)
		}
		if u.video && s.info.Video == nil {
			return fault.Failedf(fault.NoMedia, "%s: the %s has no video", u.name, u.noun)
		}
		if (u.audio || u.heard) && s.info.Unheard {
			return fault.Failedf(fault.SourceUnreadable, "%s: the %s has sound that this server cannot decode", u.name, u.noun)
		}
		if u.audio && s.info.Audio == nil {
			return fault.Failedf(fault.NoMedia, "%s: the %s has no sound", u.name, u.noun)
		}
	}
	return nil
}
