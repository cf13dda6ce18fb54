package engine

import (
	"cmp"
	"fmt"
	"math"
	"sort"
	"strings"
	"time"

	"cutroom/internal/media"
)

// videoVersion is raised when the same part would look different; it is part of
// every key.
const videoVersion = 4

// videoPart is a stretch of the film that one ffmpeg run encodes: pictures
// alone, constant frame rate, an exact number of frames. What it holds depends
// on its source and canvas only, never on its place in a timeline.
type videoPart struct {
	Key    string
	File   string // in the job's folder
	Name   string // "normalize segments[0]", for logs
	Frames int64

	source  *Source
	segment int // client's index of the first segment that uses it
	canvas  Canvas
	profile Profile
	economy economy
	threads int     // set by assignThreads
	task    *task   // its share of the progress; nil where nobody is told
	uneven  bool    // pictures of the source differ in size or format, see sameSize
	start   float64 // source seconds of the first output frame
	speed   float64

	// Which output frame shows which source frame, see line: file time of the
	// latest start that the first output frame still shows, and the distance
	// between output frames in the source, both in microseconds.
	origin int64
	step   float64

	// first and last are the source's frames the part needs, as indexes into
	// videoInfo.Starts, both included.
	first, last int
}

const (
	// chunkSeconds is the length of the pieces a long segment is encoded in, in
	// output time. Pieces lie on a grid of the source's own time, so a segment
	// that was trimmed or split finds its inner pieces in the cache.
	chunkSeconds = 6
	// minChunkSeconds is the shortest piece worth a process of its own.
	minChunkSeconds = 3
)

// planVideo cuts every segment into parts; equal parts are made once.
func (p *Plan) planVideo(l *layout, machine Machine) error {
	known := map[string]*videoPart{}
	for k := range l.segments {
		s := &l.segments[k]
		s.tolerance = tolerance(s.segment.Speed/l.rate.Float(), s.source.info.Video)
		for _, c := range chunks(s, l.rate) {
			part, err := newVideoPart(s, c, p.Canvas, p.Profile, machine)
			if err != nil {
				return err
			}
			if k := known[part.Key]; k != nil {
				part = k
			} else {
				known[part.Key] = part
				part.File = fmt.Sprintf("part%03d.mp4", len(p.Parts))
				p.Parts = append(p.Parts, part)
			}
			p.Sequence = append(p.Sequence, part)
		}
	}
	return nil
}

// span is a half-open range, of frames or of samples.
type span struct{ from, to int64 }

// chunks splits a segment at multiples of chunkSeconds of the source's grid, or
// rather at the keyframe that follows, as long as both sides are at least
// minChunkSeconds. Frames that only correct the
// drift come apart, so that they can come and go without the rest.
func chunks(s *placed, rate media.Rational) []span {
	out := baseChunks(s, rate)
	if s.frames > s.base {
		out = append(out, span{s.base, s.frames})
	}
	return out
}

func baseChunks(s *placed, rate media.Rational) []span {
	if s.base == 0 {
		return nil
	}
	step := s.segment.Speed / rate.Float()
	grid := int64(math.Round(s.start / step)) // the segment's first line counted from the source's start
	size := int64(math.Round(chunkSeconds * rate.Float()))
	least := int64(math.Round(minChunkSeconds * rate.Float()))
	var out []span
	from := int64(0)
	for line := roundUp(grid+1, size) - size; line < grid+s.base; line += size {
		if at := s.keyLine(line-grid, size, step); at-from >= least && s.base-at >= least {
			out = append(out, span{from, at})
			from = at
		}
	}
	return append(out, span{from, s.base})
}

// keyLine is the first output frame of the segment, from the given one on and
// fewer than within further, that shows a keyframe of the source: whoever begins
// there decodes nothing twice. It is the given one where there is none.
func (s *placed) keyLine(frame, within int64, step float64) int64 {
	keys := s.source.info.Video.Keys
	zero := s.start + s.source.info.Zero.Seconds() + s.tolerance
	line := func(n int) int64 { return int64(math.Ceil((float64(keys[n])/1e9 - zero) / step)) }
	if n := sort.Search(len(keys), func(n int) bool { return line(n) >= frame }); n < len(keys) && line(n) < frame+within {
		return line(n)
	}
	return frame
}

func newVideoPart(s *placed, c span, canvas Canvas, profile Profile, machine Machine) (*videoPart, error) {
	step := s.segment.Speed / canvas.Rate.Float()
	v := &videoPart{
		Frames: c.to - c.from, source: s.source, segment: s.index, canvas: canvas, profile: profile,
		start: s.start + float64(c.from)*step, speed: s.segment.Speed,
	}
	v.Name = fmt.Sprintf("normalize segments[%d]", s.index)
	if c.from > 0 || c.to < s.frames {
		v.Name += fmt.Sprintf(" frames %d to %d", c.from, c.to-1)
	}
	info := s.source.info.Video
	start := micros(v.start)
	v.origin = start + s.source.info.Zero.Microseconds() + micros(s.tolerance)
	v.step = printed(step * 1e6)
	v.first = max(0, v.framesUpTo(0)-1)
	for starts := info.Starts; v.first > 0 && starts[v.first-1] == starts[v.first]; { // bounds cannot part them
		v.first--
	}
	v.last = max(v.first, v.framesUpTo(v.Frames-1)-1)
	if err := v.economize(machine); err != nil {
		return nil, err
	}
	v.Key = newKey("video").
		add("version", videoVersion).add("source", s.source.SHA256).add("stream", info.Index).
		add("start", start).add("frames", v.Frames).add("speed", decimal(v.speed)).
		add("width", canvas.Width).add("height", canvas.Height).add("rate", canvas.Rate).
		add("crf", profile.CRF).add("preset", profile.Preset).add("economy", v.economy).String() + ".mp4"
	return v, nil
}

// tolerance is how much later than an output frame a source frame may begin and
// still be shown in it, in source seconds, as step is: two fifths of a frame, so
// that the jitter of a camera's clock neither drops nor doubles frames. It is no
// simple fraction, because between common rates those fall exactly on the edge.
func tolerance(step float64, video *videoInfo) float64 {
	return 0.4142 * min(step, video.usualStep().Seconds())
}

// line is the output frame from which on the n-th source frame is shown.
//
// The plan and ffmpeg find the same number, whatever the source's clock, because
// they compute it alike: settb rounds the frame's time to the nearest
// microsecond, as microsAt does; origin is whole; and the filters get the step
// with the digits that printed keeps, for one subtraction, division and rounding
// up in 64-bit floating point on either side.
func (v *videoPart) line(n int) int64 {
	return int64(max(0, math.Ceil(float64(v.source.info.Video.microsAt(n)-v.origin)/v.step)))
}

// framesUpTo is how many of the source's frames have begun by the output frame.
func (v *videoPart) framesUpTo(frame int64) int {
	return sort.Search(len(v.source.info.Video.Starts), func(n int) bool { return v.line(n) > frame })
}

// bounds are the ticks of the source's clock that hold the frames from first to
// last and no other, half-open. As far as possible from the frames wanted, for
// those whose decoder moves them; at the ends, where the file may hold frames
// that its edit list hides, as near as possible.
func (v *videoPart) bounds() (from, to int64) {
	starts := v.source.info.Video.Starts
	from, to = starts[v.first], starts[v.last]+1
	if v.first > 0 {
		from = starts[v.first-1] + 1
	}
	if v.last+1 < len(starts) {
		to = starts[v.last+1]
	}
	return from, to
}

// keyframe is the file time in seconds of the last keyframe at least lead
// seconds before the part's first frame, 0 when decoding has to begin at the
// start of the file: H.264 of 4:4:4 has to, because what an old x264 did wrongly is
// decoded as it was meant only after its first packet, which bears the version.
func (v *videoPart) keyframe(lead float64) float64 {
	video := v.source.info.Video
	if video.Codec == "h264" && strings.Contains(video.PixelFormat, "444") {
		return 0
	}
	first := float64(video.Starts[v.first])*video.TimeBase.Float() - lead
	n := sort.Search(len(video.Keys), func(i int) bool { return float64(video.Keys[i])/1e9 > first+1e-6 })
	if n < 2 { // the first keyframe is the start
		return 0
	}
	return float64(video.Keys[n-1]) / 1e9
}

// decodes is how many of the source's frames are decoded for the part: those from
// the keyframe before it on.
func (v *videoPart) decodes() int64 {
	video, key := v.source.info.Video, v.keyframe(0)
	from := 0
	if key > 0 {
		tick := video.TimeBase.Float()
		from = sort.Search(v.first, func(n int) bool { return float64(video.Starts[n])*tick > key-1e-6 })
	}
	return int64(v.last - from + 1)
}

// pass is the ffmpeg run that makes the part into out; the times of all decoded
// frames go to log (see coverage). Decoding begins at the keyframe at file time
// key, or at the start of the file for 0.
func (v *videoPart) pass(out, log string, key float64) media.Pass {
	info := v.source.info
	video := info.Video
	threads := fmt.Sprint(cmp.Or(v.economy.threads, v.threads))
	// How much of a source must be decodable is judged by the coverage, not by ffmpeg.
	args := []string{"-max_error_rate", "1", "-copyts", "-noaccurate_seek", "-noautorotate", "-threads", threads}
	if key > 0 {
		// Asked for the keyframe itself, the demuxer cannot land on a later one.
		// Asked for the frame, it can: it compares decoding times, and a keyframe
		// is decoded before frames that are shown before it.
		args = append(args, "-seek_timestamp", "1", "-ss", decimal(key+0.0002))
	}
	args = append(args, "-an", "-sn", "-dn")
	steady := v.sameSize()
	if v.uneven {
		args = append(args, "-reinit_filter", "0")
		steady = v.oneSize()
	}
	args = append(args, media.InputArgs(info.Kind, v.source.Path)...)
	// Bounds in ticks: from seconds, ffmpeg would round them to the source's clock,
	// and a clock as coarse as the frames makes one bound of two neighbours.
	from, to := v.bounds()
	graph := fmt.Sprintf("[0:%d]%s,trim=start_pts=%d:end_pts=%d,split[film][log];[film]%s[out]",
		video.Index, steady, from, to, strings.Join(v.filters(), ","))
	args = append(args, "-filter_threads", threads, "-filter_complex_threads", threads,
		"-filter_complex", graph,
		"-map", "[out]", "-c:v", "libx264", "-profile:v", "high", "-preset", v.profile.Preset, "-crf", fmt.Sprint(v.profile.CRF))
	args = append(append(args, v.economy.args()...),
		"-threads", threads, "-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "bt709", "-color_range", "tv",
		"-fps_mode", "passthrough", "-frames:v", fmt.Sprint(v.Frames),
		"-video_track_timescale", fmt.Sprint(timescale(v.canvas.Rate)), "-map_metadata", "-1", "-f", "mp4", out,
		"-map", "[log]", "-c:v", "wrapped_avframe", "-fps_mode", "passthrough",
		"-enc_time_base", "1:1000", // not of the usual rate: where frames begin between its ticks, they would be moved
		"-f", "mkvtimestamp_v2", log)
	return media.Pass{
		Name: v.Name, Args: args, Inputs: []string{v.source.Path},
		Timeout: passTimeout(framesDuration(v.Frames, v.canvas.Rate), v.cost()/float64(v.Frames)*v.canvas.Rate.Float()),
	}
}

// filters is the chain from the trimmed source to the canvas.
func (v *videoPart) filters() []string {
	var chain []string
	video := v.source.info.Video
	if video.Interlaced() {
		parity := map[string]string{"tt": "tff", "bt": "tff", "bb": "bff", "tb": "bff"}[video.FieldOrder]
		chain = append(chain, "bwdif=mode=send_frame:parity="+parity+":deint=all")
	}
	// Every source frame is put on the output frame from which on it is shown, see
	// line, and fps then repeats and drops: the last of several on one line stays,
	// and start_time=0 shows the first one from the start where the video begins
	// late. The last frame is held for as long as the part lasts by tpad, before
	// fps and not behind it: when its input ends, fps drops what an imprecise
	// length of the last frame, as a coarse clock has, puts past the end. The
	// times of the held copies are tpad's guess and are not used: they are counted
	// on from the end of the part. ld(0), the line before, keeps the order where
	// frames are missing.
	count := int64(v.last - v.first + 1)
	timing := []string{
		"settb=1/1000000",
		"tpad=stop_mode=clone:stop=-1",
		fmt.Sprintf("setpts='if(gte(N,%d),N%+d,st(0,max(ceil((PTS-%d)/%s),ld(0))))*%s'", count, v.Frames-count, v.origin, decimal(v.step),
			decimal(1e6/v.canvas.Rate.Float())),
		fmt.Sprintf("fps=%s:start_time=0", v.canvas.Rate),
		fmt.Sprintf("trim=end_frame=%d", v.Frames),
	}
	// Pictures are turned where there are fewer of them: before frames are
	// repeated, after frames are dropped.
	if picture := v.picture(); count > v.Frames {
		chain = append(append(chain, timing...), picture...)
	} else {
		chain = append(append(chain, picture...), timing...)
	}
	// Side data speaks of the source: its light, its turn, its captions.
	return append(chain, "sidedata=mode=delete", "setparams=range=tv:colorspace=bt709:color_primaries=bt709:color_trc=bt709:field_mode=prog")
}

// timescale is the clock of a part's track: a multiple of the rate's numerator,
// so that every frame starts on a tick.
func timescale(rate media.Rational) int64 {
	scale := rate.Num
	for scale < 10000 {
		scale *= 10
	}
	return scale
}

// cost estimates the CPU seconds the part takes; only proportions matter.
func (v *videoPart) cost() float64 {
	const perPixel = 4.2e-8 // preset fast with decoding, measured on a slow core
	factor := 1.0
	if v.profile.Preset == "slow" {
		factor = 2.2
	}
	canvas := float64(v.canvas.Width * v.canvas.Height)
	video := v.source.info.Video
	in := float64(video.Width*video.Height) * 0.12
	if video.HDR() {
		in += canvas * 1.5
	}
	sourceFrames := float64(v.last - v.first + 1)
	return 0.1 + perPixel*(canvas*factor*float64(v.Frames)+in*sourceFrames)
}

// passTimeout is a bound no honest pass reaches: twenty times its estimate per
// second of output, and at least five minutes.
func passTimeout(length time.Duration, cpuPerSecond float64) time.Duration {
	return max(5*time.Minute, time.Duration(20*cpuPerSecond*float64(length)))
}
