// A shot: the range of one segment's pictures that a part shows, with its timing, its filters and what it adds to the
// part's key.

package engine

import (
	"fmt"
	"math"
	"sort"
	"strings"

	"cutroom/internal/film/media"
	"cutroom/internal/film/timeline"
)

// shot is a range of one segment's pictures in a part: which source frames, at what speed, and how they fit the
// canvas.
type shot struct {
	source  *Source
	segment int // client's index of the first segment that uses it
	canvas  Canvas
	view    view
	framing framing
	moves   []waypoint // nil = the whole canvas
	adjust  timeline.Adjust
	frames  int64   // of the output
	uneven  bool    // pictures of the source differ in size or format, see requireSize
	start   float64 // source seconds of the first output frame
	speed   float64

	// Which output frame shows which source frame, see line: origin is the latest start, in file time, of a source
	// frame that the first output frame still shows; step is the distance between output frames. Both are source
	// microseconds.
	origin int64
	step   float64

	// first and last are the source frames that the shot needs, as indexes into videoInfo.Starts, both included.
	first, last int

	// mixes is what each frame shows, in the source's order, if origin and step cannot tell; otherwise nil. backwards
	// means that the frames are reversed once they are made.
	mixes     []mix
	backwards bool
}

// newShot returns the shot of frames c of a segment.
func newShot(p *placed, c span, canvas Canvas) *shot {
	step := p.segment.Speed / canvas.Rate.Float()
	s := &shot{
		source: p.source, segment: p.index, canvas: canvas, view: p.view, framing: p.framing, frames: c.to - c.from,
		moves: waypoints(p.segment.Moves, c, canvas.Rate), adjust: p.segment.Adjust,
		start: p.start + float64(c.from)*step, speed: p.segment.Speed,
	}
	s.origin = s.startMicros() + s.source.info.Zero.Microseconds() + micros(p.tolerance)
	s.step = printed(step * 1e6)
	if p.mixed != nil {
		if own := p.inOrder(c); p.segment.Reverse || p.pace != nil || !s.straight(own) {
			s.mixes, s.backwards = own, p.segment.Reverse
		}
	}
	if s.mixes != nil {
		s.first, s.last = s.mixes[0].lower, s.mixes[s.frames-1].upper
	} else {
		s.first = max(0, s.framesUpTo(0)-1)
		s.last = max(s.first, s.framesUpTo(s.frames-1)-1)
	}
	starts := s.source.info.Video.Starts
	for s.first > 0 && starts[s.first-1] == starts[s.first] { // bounds cannot separate frames with equal times
		s.first--
	}
	return s
}

func (s *shot) startMicros() int64 { return micros(s.start) }

// addTo adds everything that shapes the shot's frames, except the canvas, to a part's key.
func (s *shot) addTo(k key) key {
	k = k.add("source", s.source.SHA256).add("stream", s.source.info.Video.Index)
	if n := s.source.info.Video.Untimed; n > 0 {
		k = k.add("untimed", n)
	}
	if s.mixes == nil {
		k = k.add("start", s.startMicros()).add("frames", s.frames).add("speed", decimal(s.speed))
	} else {
		k = k.add("mixVersion", mixVersion).add("backwards", s.backwards).add("mixes", s.mixes)
	}
	if s.framing != (framing{}) {
		k = k.add("framing", s.framing)
	}
	turned := s.view != newView(s.source.info.Video, timeline.Segment{})
	if turned {
		k = k.add("view", s.view)
	}
	if s.moves != nil {
		k = k.add("moves", s.moves)
	}
	adjusted := s.adjust != (timeline.Adjust{})
	if adjusted {
		k = k.add("adjust", s.adjust)
	}
	if turned || s.moves != nil || adjusted {
		k = k.add("lookVersion", lookVersion)
	}
	return k
}

// tolerance is how much later than an output frame, in source seconds, a source frame may begin and still be shown in
// it. Two fifths of a frame keep the jitter of a camera's clock from dropping or doubling frames. Simple fractions
// would fall exactly on the edge between common rates.
func tolerance(step float64, video *videoInfo) float64 {
	return toleranceOf(step, video.usualStep().Seconds())
}

// toleranceOf is the tolerance for a source whose frames usually lie usual seconds apart.
func toleranceOf(step, usual float64) float64 { return 0.4142 * min(step, usual) }

// line is the output frame at which the n-th source frame appears.
//
// The plan and ffmpeg get the same number for every source clock: settb rounds the frame's time to microseconds as
// microsAt does, origin is a whole number, and the filters get the step with the digits that printed keeps. So both
// sides do one subtraction, one division and one rounding up in 64-bit floating point.
func (s *shot) line(n int) int64 {
	return int64(max(0, math.Ceil(float64(s.source.info.Video.microsAt(n)-s.origin)/s.step)))
}

// straight reports whether each frame shows the one picture that origin and step say.
func (s *shot) straight(mixes []mix) bool {
	for j, m := range mixes {
		if n := max(0, s.framesUpTo(int64(j))-1); m.lower != n || m.upper != n {
			return false
		}
	}
	return true
}

// framesUpTo counts the source frames that have begun by the output frame.
func (s *shot) framesUpTo(frame int64) int {
	return sort.Search(len(s.source.info.Video.Starts), func(n int) bool { return s.line(n) > frame })
}

// bounds returns the half-open range of the source's ticks that contains exactly the frames from first to last. It is
// as wide as possible, because some decoders move frames, except at the ends of the file, where an edit list may hide
// frames.
func (s *shot) bounds() (from, to int64) {
	starts := s.source.info.Video.Starts
	from, to = starts[s.first], starts[s.last]+1
	if s.first > 0 {
		from = starts[s.first-1] + 1
	}
	if s.last+1 < len(starts) {
		to = starts[s.last+1]
	}
	return from, to
}

// keyframe returns the file time in seconds of the last key frame at least lead seconds before the shot's first
// frame, or 0 for the start of the file. H.264 in 4:4:4 always starts there: only its first packet contains the
// version of x264 whose bug ffmpeg works around.
func (s *shot) keyframe(lead float64) float64 {
	video := s.source.info.Video
	if video.Codec == "h264" && strings.Contains(video.PixelFormat, "444") {
		return 0
	}
	first := float64(video.Starts[s.first])*video.TimeBase.Float() - lead
	n := sort.Search(len(video.Keys), func(i int) bool { return float64(video.Keys[i])/1e9 > first+1e-6 })
	if n < 2 { // the first keyframe is the start
		return 0
	}
	return float64(video.Keys[n-1]) / 1e9
}

// decodes counts the source frames decoded for the shot, from the key frame before it.
func (s *shot) decodes() int64 {
	video, key := s.source.info.Video, s.keyframe(0)
	from := 0
	if key > 0 {
		tick := video.TimeBase.Float()
		from = sort.Search(s.first, func(n int) bool { return float64(video.Starts[n])*tick > key-1e-6 })
	}
	return int64(s.last - from + 1)
}

// filters returns the chain from the trimmed source to the canvas. n numbers its labels.
func (s *shot) filters(n int) []string {
	var chain []string
	if filter := s.deinterlace(); filter != "" {
		chain = append(chain, filter)
	}
	// setpts moves every source frame to the first output frame that shows it, see line; ld(0), the previous line,
	// keeps the order if frames are missing. fps repeats and drops frames: it keeps the last of several on one line,
	// and start_time=0 shows the first frame from the start if the video begins late. tpad holds the last frame until
	// the part ends. It precedes fps, which drops frames at the end of its input whose length is imprecise. tpad
	// guesses the times of the copies, so setpts counts them from the end of the part.
	count := int64(s.last - s.first + 1)
	timing := func(line string) []string {
		return []string{
			"settb=1/1000000",
			"tpad=stop_mode=clone:stop=-1",
			fmt.Sprintf("setpts='if(gte(N,%d),N%+d,st(0,max(%s,ld(0))))*%s'", count, s.frames-count, line, decimal(1e6/s.canvas.Rate.Float())),
			fmt.Sprintf("fps=%s:start_time=0", s.canvas.Rate),
			fmt.Sprintf("trim=end_frame=%d", s.frames),
		}
	}
	line := fmt.Sprintf("ceil((PTS-%d)/%s)", s.origin, decimal(s.step))
	if s.mixes != nil {
		line = s.lineOf(func(m mix) int { return m.lower })
	}
	// Scale where there are fewer pictures: before repeating frames, or after dropping frames. Blend what is scaled.
	switch picture := s.picture(n); {
	case blends(s.mixes):
		chain = append(chain, picture...)
		chain = append(chain, s.blending(n, timing(line), timing(s.lineOf(func(m mix) int { return m.upper }))))
	case count > s.frames:
		chain = append(append(chain, timing(line)...), picture...)
	default:
		chain = append(append(chain, picture...), timing(line)...)
	}
	if s.backwards && s.frames > 1 {
		chain = append(chain, "reverse")
	}
	if s.moves != nil {
		chain = append(chain, s.moving(n))
	}
	if s.adjust != (timeline.Adjust{}) && !s.padded() {
		chain = append(chain, s.adjusting())
	}
	// Remove side data, which describes the source: mastering display, rotation, captions.
	return append(chain, "sidedata=mode=delete", neutral)
}

// deinterlace returns the filter that turns fields into whole frames, or "" for progressive video.
func (s *shot) deinterlace() string {
	video := s.source.info.Video
	if !video.Interlaced() {
		return ""
	}
	parity := map[string]string{"tt": "tff", "bt": "tff", "bb": "bff", "tb": "bff"}[video.FieldOrder]
	return "bwdif=mode=send_frame:parity=" + parity + ":deint=all"
}

// tags returns the filter that states the matrix and range that the plan assumes. Since version 7, ffmpeg converts
// pictures to the matrix and range of their neighbours in the graph, even pictures that state none.
func (s *shot) tags() string {
	video := s.source.info.Video
	if isRGB(video.PixelFormat) {
		return "setparams=range=pc:colorspace=gbr,"
	}
	matrix, levels := s.matrix(), "tv"
	if matrix == "bt2020ncl" {
		matrix = "bt2020nc" // setparams and colorspace name it differently
	}
	if fullRange(video) {
		levels = "pc"
	}
	return fmt.Sprintf("setparams=range=%s:colorspace=%s,", levels, matrix)
}

// neutral sets the colour metadata and pixel shape of all pictures of the film.
const neutral = "setparams=range=tv:colorspace=bt709:color_primaries=bt709:color_trc=bt709:field_mode=prog"

// input returns the arguments that open the shot's source and decode it from the key frame at file time key, or from
// the start if that is 0.
func (s *shot) input(threads string, key float64) []string {
	args := []string{"-noaccurate_seek", "-noautorotate", "-threads", threads}
	if key > 0 {
		// Seek to the key frame itself. The demuxer compares decoding timestamps, and frames may be shown before a key
		// frame but decoded after it, so seeking to a frame may land on the key frame after it.
		args = append(args, "-seek_timestamp", "1", "-ss", decimal(key+0.0002))
	}
	args = append(args, "-an", "-sn", "-dn")
	if s.uneven {
		args = append(args, "-reinit_filter", "0")
	}
	if decoder := s.source.info.Video.Decoder(); decoder != "" {
		args = append(args, fmt.Sprintf("-c:%d", s.source.info.Video.Index), decoder)
	}
	return append(args, media.InputArgs(s.source.info.Kind, s.source.Path)...)
}

// timeUntimed returns the filter that gives the frames before time 0 their times, if decoding from key returns them.
func (s *shot) timeUntimed(key float64) string {
	video := s.source.info.Video
	if video.Untimed == 0 || key > 0 {
		return ""
	}
	return fmt.Sprintf("setpts='if(lt(N,%d),%d+N*%d,PTS)',", video.Untimed, video.Starts[0], video.Step)
}

// graph returns the part of a filter graph that brings the n-th input, decoded from key on, onto the canvas. It ends in
// [out], and in [log] for the times of all decoded frames.
func (s *shot) graph(n int, key float64, out, film, log string) string {
	steady := s.requireSize()
	if s.uneven {
		steady = s.scaleToSize()
	}
	// Bounds are in ticks: ffmpeg would round seconds to the source's clock, which may be as coarse as the frames.
	from, to := s.bounds()
	return fmt.Sprintf("[%d:%d]%s%s%s,trim=start_pts=%d:end_pts=%d,split[%s][%s];[%s]%s[%s]",
		n, s.source.info.Video.Index, s.timeUntimed(key), s.tags(), steady, from, to, film, log, film, strings.Join(s.filters(n), ","), out)
}

// cost estimates the CPU seconds that decoding and fitting take, see videoPart.cost.
func (s *shot) cost() float64 {
	canvas := float64(s.canvas.pixels())
	video := s.source.info.Video
	in := float64(video.pixels()) * 0.12
	if video.HDR() {
		in += canvas * 1.5
	}
	cost := in * float64(s.last-s.first+1)
	if s.framing.blur {
		cost += canvas * 0.1 * float64(s.frames)
	}
	if s.moves != nil {
		cost += canvas * 0.7 * float64(s.frames)
	}
	if blends(s.mixes) {
		cost += canvas * 0.2 * float64(s.frames)
	}
	return perPixel * cost
}
