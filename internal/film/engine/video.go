// Cuts the film's pictures into parts, and describes each: its key in the cache, its ffmpeg pass and its cost.

package engine

import (
	"cmp"
	"fmt"
	"math"
	"sort"
	"time"

	"cutroom/internal/film/media"
	"cutroom/internal/film/timeline"
)

// videoVersion is part of every key. Raise it when the same part would look different.
const videoVersion = 5

// Raise lookVersion when the same view, moves or adjustment would look different.
const lookVersion = 1

// Raise mixVersion when the same mixes would look different.
const mixVersion = 1

// Raise joinVersion when the same join or fade would look different.
const joinVersion = 1

// videoPart is a range of the film that one ffmpeg run encodes: pictures only, with an exact number of frames. Its
// content depends only on its sources and the canvas, never on its place in a timeline.
type videoPart struct {
	Key    string
	File   string // in the job's folder
	Name   string // "normalize segments[0]", for logs
	Frames int64

	shots    []*shot       // one, or the two of a join
	join     timeline.Join // of two shots
	joinFrom int64         // frame of the join at which the part begins
	fades    []fade

	canvas   Canvas
	profile  Profile
	settings encoderSettings
	threads  int        // of the encoder; see Part
	task     *task      // its share of the progress; nil when assisting another machine
	config   string     // of its decoder; set by check
	decoded  []coverage // of each shot, if the part was made here
}

const (
	// chunkSeconds is the length, in output time, of the chunks in which a long segment is encoded. They lie on a
	// grid of the source's own time, so a trimmed or split segment finds its inner chunks in the cache.
	chunkSeconds = 6
	// minChunkSeconds is the shortest chunk that is worth a process.
	minChunkSeconds = 3
)

// planVideo cuts every segment into parts; equal parts are made once.
func (p *Plan) planVideo(t timeline.Timeline, l *layout, ends []fade, machine Machine) error {
	known := map[string]*videoPart{}
	var fades []fade
	for k := range l.segments {
		fades = append(fades, joinFades(&l.segments[k])...)
	}
	fades = append(fades, ends...)
	frame := int64(0) // of the film
	add := func(part *videoPart) error {
		part.fades = within(fades, span{frame, frame + part.Frames})
		frame += part.Frames
		if err := part.fitMemory(machine); err != nil {
			return err
		}
		part.Key = part.key()
		if k := known[part.Key]; k != nil {
			part = k
		} else {
			known[part.Key] = part
			part.File = fmt.Sprintf("part%03d.mp4", len(p.Parts))
			p.Parts = append(p.Parts, part)
		}
		p.Sequence = append(p.Sequence, part)
		return nil
	}
	for k := range l.segments {
		s := &l.segments[k]
		s.tolerance = tolerance(s.segment.Speed/l.rate.Float(), s.source.info.Video)
		s.framing = newFraming(s.view, p.Canvas, t.FitOf(s.segment), s.segment.FocusOf())
		s.mixed = s.mixes(l.rate)
		if s.join.Overlap() > 0 {
			before := &l.segments[k-1]
			for _, c := range overlapChunks(before, s, p.Canvas) {
				if err := add(newOverlap(before, s, c, p.Canvas, p.Profile)); err != nil {
					return err
				}
			}
		}
		for _, c := range l.cutAtEnds(chunks(s, p.Canvas), s, ends) {
			if err := add(newVideoPart(s, c, p.Canvas, p.Profile)); err != nil {
				return err
			}
		}
	}
	return nil
}

// span is a half-open range, of frames or of samples.
type span struct{ from, to int64 }

// chunks splits a segment at the first key frame after each multiple of chunkSeconds on the source's grid. Frames
// that only correct the drift are a chunk of their own, so that they can be added and removed alone. Frames that
// overlap a neighbour are excluded, so changing a transition encodes only the chunks at the segment's ends again.
func chunks(s *placed, canvas Canvas) []span {
	if s.mixed != nil {
		return s.mixedChunks(canvas)
	}
	all := baseChunks(s, canvas.Rate)
	if s.frames > s.base {
		all = append(all, span{s.base, s.frames})
	}
	from, to := s.join.Overlap(), s.frames-s.next.Overlap()
	own := all[:0]
	for _, c := range all {
		if c = (span{max(c.from, from), min(c.to, to)}); c.from < c.to {
			own = append(own, c)
		}
	}
	return own
}

func baseChunks(s *placed, rate media.Rational) []span {
	step := s.segment.Speed / rate.Float()
	grid := int64(math.Round(s.start / step)) // the segment's first line, counted from the source's start
	size := int64(math.Round(chunkSeconds * rate.Float()))
	shortest := int64(math.Round(minChunkSeconds * rate.Float()))
	var out []span
	from := int64(0)
	for line := roundUp(grid+1, size) - size; line < grid+s.base; line += size {
		if at := s.keyLine(line-grid, size, step); at-from >= shortest && s.base-at >= shortest {
			out = append(out, span{from, at})
			from = at
		}
	}
	return append(out, span{from, s.base})
}

// keyLine returns the first output frame in [frame, frame+within) that shows a key frame of the source, or frame if
// there is none. A part that begins at a key frame repeats no decoding.
func (s *placed) keyLine(frame, within int64, step float64) int64 {
	keys := s.source.info.Video.Keys
	zero := s.start + s.source.info.Zero.Seconds() + s.tolerance
	line := func(n int) int64 { return int64(math.Ceil((float64(keys[n])/1e9 - zero) / step)) }
	if n := sort.Search(len(keys), func(n int) bool { return line(n) >= frame }); n < len(keys) && line(n) < frame+within {
		return line(n)
	}
	return frame
}

// newVideoPart returns the part with frames c of a segment.
func newVideoPart(s *placed, c span, canvas Canvas, profile Profile) *videoPart {
	v := &videoPart{
		Frames: c.to - c.from, canvas: canvas, profile: profile,
		shots: []*shot{newShot(s, c, canvas)},
	}
	v.Name = fmt.Sprintf("normalize segments[%d]", s.index)
	if c.from > 0 || c.to < s.frames {
		v.Name += fmt.Sprintf(" frames %d to %d", c.from, c.to-1)
	}
	return v
}

// newOverlap returns the part with frames c of the overlap of two segments.
func newOverlap(before, after *placed, c span, canvas Canvas, profile Profile) *videoPart {
	end := before.frames - after.join.Overlap() // of the frames that the outgoing segment shows alone
	return &videoPart{
		Name:   fmt.Sprintf("%s from segments[%d] to segments[%d]", after.join.Kind, before.index, after.index),
		Frames: c.to - c.from, join: after.join, joinFrom: c.from, canvas: canvas, profile: profile,
		shots: []*shot{newShot(before, span{end + c.from, end + c.to}, canvas), newShot(after, c, canvas)},
	}
}

// overlapChunks splits the overlap of two segments if ffmpeg could not hold the pictures of reversed ones all at once.
func overlapChunks(before, after *placed, canvas Canvas) []span {
	n := after.join.Overlap()
	pieces := int64(1)
	switch most := mostReversed(canvas); {
	case before.segment.Reverse && after.segment.Reverse:
		pieces = (2*n + most - 1) / most
	case before.segment.Reverse || after.segment.Reverse:
		pieces = (n + most - 1) / most
	}
	var all []span
	for i := range pieces {
		all = append(all, span{n * i / pieces, n * (i + 1) / pieces})
	}
	return all
}

// key includes everything that shapes the part.
func (v *videoPart) key() string {
	k := newKey(kindVideo).add("version", videoVersion)
	for _, s := range v.shots {
		k = s.addTo(k)
	}
	k = k.add("width", v.canvas.Width).add("height", v.canvas.Height).add("rate", v.canvas.Rate).
		add("crf", v.profile.CRF).add("preset", v.profile.Preset).add("economy", v.settings)
	if len(v.shots) > 1 || len(v.fades) > 0 {
		k = k.add("joinVersion", joinVersion)
	}
	if len(v.shots) > 1 {
		k = k.add("join", v.join)
		if v.Frames != v.join.Frames {
			k = k.add("joinFrom", v.joinFrom)
		}
	}
	for _, f := range v.fades {
		k = k.add("fade", f)
	}
	return k.String() + ".mp4"
}

// keyframes returns the file times at which decoding of each shot begins, see shot.keyframe.
func (v *videoPart) keyframes(lead float64) []float64 {
	keys := make([]float64, len(v.shots))
	for i, s := range v.shots {
		keys[i] = s.keyframe(lead)
	}
	return keys
}

// log returns the file with the times of all decoded frames of a shot, see coverage.
func (v *videoPart) log(shot int) string {
	if shot == 0 {
		return v.File + ".log"
	}
	return fmt.Sprintf("%s.%d.log", v.File, shot)
}

// pass returns the ffmpeg run that encodes the part into out. keys are the file times from which the shots are decoded,
// see keyframes.
func (v *videoPart) pass(out string, keys []float64) media.Pass {
	threads := fmt.Sprint(cmp.Or(v.settings.threads, v.threads))
	// Coverage decides how much of a source must be decodable, not ffmpeg.
	args := []string{"-max_error_rate", "1", "-copyts"}
	var inputs []string
	for i, s := range v.shots {
		args = append(args, s.input(threads, keys[i])...)
		inputs = append(inputs, s.source.Path)
	}
	args = append(args, "-filter_threads", threads, "-filter_complex_threads", threads,
		"-filter_complex", v.graph(keys),
		"-map", "[out]", "-c:v", "libx264", "-profile:v", "high", "-preset", v.profile.Preset, "-crf", fmt.Sprint(v.profile.CRF),
		"-g", fmt.Sprint(keyInterval(v.canvas.Rate)))
	args = append(append(args, v.settings.args()...),
		"-threads", threads, "-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "bt709", "-color_range", "tv",
		// Without this, x264 writes the source's position of chroma samples into the decoder configuration, and the
		// parts of a film disagree.
		"-x264-params", "chromaloc=0",
		"-fps_mode", "passthrough", "-frames:v", fmt.Sprint(v.Frames),
		"-video_track_timescale", fmt.Sprint(timescale(v.canvas.Rate)), "-map_metadata", "-1", "-f", "mp4", out)
	for i := range v.shots {
		args = append(args, "-map", fmt.Sprintf("[%s]", label("log", i)), "-c:v", "wrapped_avframe", "-fps_mode", "passthrough",
			"-enc_time_base", "1:1000", // a frame rate as time base would move frames between its ticks
			"-f", "mkvtimestamp_v2", v.log(i))
	}
	return media.Pass{
		Name: v.Name, Args: args, Inputs: inputs,
		Timeout: passTimeout(framesDuration(v.Frames, v.canvas.Rate), v.cost()/float64(v.Frames)*v.canvas.Rate.Float()),
	}
}

// keyInterval returns the largest number of frames between key frames: two seconds, so that players jump quickly.
func keyInterval(rate media.Rational) int64 { return max(1, 2*rate.Num/rate.Den) }

// timescale returns the ticks per second of a part's track. Every frame starts on a tick.
func timescale(rate media.Rational) int64 {
	scale := rate.Num
	for scale < 10000 {
		scale *= 10
	}
	return scale
}

// perPixel is the CPU seconds that preset fast needs to decode and encode a pixel, measured on a slow core.
const perPixel = 4.2e-8

// cost estimates the CPU seconds the part takes; only proportions matter.
func (v *videoPart) cost() float64 {
	factor := 1.0
	if v.profile.Preset == "slow" {
		factor = 2.2
	}
	cost := 0.1 + perPixel*float64(v.canvas.pixels())*factor*float64(v.Frames)
	for _, s := range v.shots {
		cost += s.cost()
	}
	return cost
}

// passTimeout returns a limit that no normal pass reaches: twenty times its estimated CPU time.
func passTimeout(length time.Duration, cpuPerSecond float64) time.Duration {
	return max(5*time.Minute, time.Duration(20*cpuPerSecond*float64(length)))
}
