package engine

import (
	"fmt"
	"math"
	"sort"
	"strings"
	"time"

	"cutroom/internal/media"
)

// videoVersion is raised when the same part would look different; it is part of
// every key.
const videoVersion = 1

// VideoPart is a stretch of the film that one ffmpeg run encodes: pictures
// alone, constant frame rate, an exact number of frames. What it holds depends
// on its source and canvas only, never on its place in a timeline.
type VideoPart struct {
	Key    string
	File   string // in the job's folder
	Name   string // "normalize segments[0]", for logs
	Frames int64

	source  *source
	segment int // client's index of the first segment that uses it
	canvas  Canvas
	profile Profile
	threads int     // set by employ
	start   float64 // source seconds of the first output frame
	speed   float64

	// first and last are the source's frames the part needs, as indexes into
	// VideoInfo.Starts, both included.
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
func (p *Plan) planVideo(l *layout) {
	known := map[string]*VideoPart{}
	for k := range l.segments {
		s := &l.segments[k]
		for _, c := range chunks(s, l.rate) {
			part := newVideoPart(s, c, p.Canvas, p.Profile)
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
}

// chunk is a range of a segment's frames.
type chunk struct{ from, to int64 }

// chunks splits a segment at multiples of chunkSeconds of the source's grid, as
// long as both sides are at least minChunkSeconds. Frames that only correct the
// drift come apart, so that they can come and go without the rest.
func chunks(s *placed, rate media.Rational) []chunk {
	out := baseChunks(s, rate)
	if s.frames > s.base {
		out = append(out, chunk{s.base, s.frames})
	}
	return out
}

func baseChunks(s *placed, rate media.Rational) []chunk {
	if s.base == 0 {
		return nil
	}
	step := s.segment.Speed / rate.Float()
	grid := int64(math.Round(s.start / step)) // the segment's first line counted from the source's start
	size := int64(math.Round(chunkSeconds * rate.Float()))
	least := int64(math.Round(minChunkSeconds * rate.Float()))
	var out []chunk
	from := int64(0)
	for line := roundUp(grid+1, size); line < grid+s.base; line += size {
		if at := line - grid; at-from >= least && s.base-at >= least {
			out = append(out, chunk{from, at})
			from = at
		}
	}
	return append(out, chunk{from, s.base})
}

func newVideoPart(s *placed, c chunk, canvas Canvas, profile Profile) *VideoPart {
	step := s.segment.Speed / canvas.Rate.Float()
	v := &VideoPart{
		Frames: c.to - c.from, source: s.source, segment: s.index, canvas: canvas, profile: profile,
		start: s.start + float64(c.from)*step, speed: s.segment.Speed,
	}
	v.Name = fmt.Sprintf("normalize segments[%d]", s.index)
	if c.from > 0 || c.to < s.frames {
		v.Name += fmt.Sprintf(" frames %d to %d", c.from, c.to-1)
	}
	info := s.source.info.Video
	zero := s.source.info.Zero
	tolerance := v.tolerance()
	v.first = info.visibleAt(v.start+tolerance, zero)
	v.last = max(v.first, info.visibleAt(v.start+float64(v.Frames-1)*step+tolerance, zero))
	v.Key = newKey("video").
		add("version", videoVersion).add("source", s.source.sha).add("stream", info.Index).
		add("start", int64(math.Round(v.start*1e6))).add("frames", v.Frames).add("speed", decimal(v.speed)).
		add("width", canvas.Width).add("height", canvas.Height).add("rate", canvas.Rate).
		add("crf", profile.CRF).add("preset", profile.Preset).String() + ".mp4"
	return v
}

// tolerance is how much later than an output frame a source frame may begin and
// still be shown in it, in source seconds: two fifths of a frame, so that the
// jitter of a camera's clock neither drops nor doubles frames. It is no simple
// fraction, because between common rates those fall exactly on the edge.
func (v *VideoPart) tolerance() float64 {
	step := v.speed / v.canvas.Rate.Float()
	return 0.4142 * min(step, v.source.info.Video.usualStep().Seconds())
}

// fps returns the rate of the source, roughly.
func (v *VideoPart) fps() float64 { return 1 / v.source.info.Video.usualStep().Seconds() }

// keyframe is the file time in seconds of the last keyframe at least lead
// seconds before the part's first frame, 0 when decoding has to begin at the
// start of the file.
func (v *VideoPart) keyframe(lead float64) float64 {
	video := v.source.info.Video
	first := float64(video.Starts[v.first])*video.TimeBase.Float() - lead
	n := sort.Search(len(video.Keys), func(i int) bool { return float64(video.Keys[i])/1e9 > first+1e-6 })
	if n < 2 { // the first keyframe is the start
		return 0
	}
	return float64(video.Keys[n-1]) / 1e9
}

// pass is the ffmpeg run that makes the part into out; the times of all decoded
// frames go to log (see coverage). Decoding begins at the keyframe at file time
// key, or at the start of the file for 0.
func (v *VideoPart) pass(out, log string, key float64) media.Pass {
	info := v.source.info
	video := info.Video
	tick := video.TimeBase.Float()
	fileTime := func(n int) float64 { return float64(video.Starts[n]) * tick }
	// Half a millisecond, or half the way to the neighbour, keeps rounding from
	// losing or adding a frame.
	from := fileTime(v.first) - 0.0005
	if v.first > 0 {
		from = max(from, (fileTime(v.first-1)+fileTime(v.first))/2)
	}
	to := fileTime(v.last) + 0.0005
	if v.last+1 < len(video.Starts) {
		to = min(to, (fileTime(v.last)+fileTime(v.last+1))/2)
	}
	threads := fmt.Sprint(v.threads)
	args := []string{"-copyts", "-noaccurate_seek", "-noautorotate", "-threads", threads}
	if key > 0 {
		// Asked for the keyframe itself, the demuxer cannot land on a later one.
		// Asked for the frame, it can: it compares decoding times, and a keyframe
		// is decoded before frames that are shown before it.
		args = append(args, "-seek_timestamp", "1", "-ss", decimal(key+0.0002))
	}
	args = append(args, "-an", "-sn", "-dn")
	args = append(args, media.InputArgs(info.Kind, v.source.path)...)
	graph := fmt.Sprintf("[0:%d]trim=start=%s:end=%s,split[film][log];[film]%s[out]",
		video.Index, decimal(from), decimal(to), strings.Join(v.filters(), ","))
	args = append(args, "-filter_threads", threads, "-filter_complex_threads", threads,
		"-filter_complex", graph,
		"-map", "[out]", "-c:v", "libx264", "-profile:v", "high", "-preset", v.profile.Preset, "-crf", fmt.Sprint(v.profile.CRF),
		"-threads", threads, "-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "bt709", "-color_range", "tv",
		"-fps_mode", "passthrough", "-frames:v", fmt.Sprint(v.Frames),
		"-video_track_timescale", fmt.Sprint(timescale(v.canvas.Rate)), "-map_metadata", "-1", "-f", "mp4", out,
		"-map", "[log]", "-c:v", "wrapped_avframe", "-fps_mode", "passthrough", "-f", "mkvtimestamp_v2", log)
	return media.Pass{
		Name: v.Name, Args: args, Inputs: []string{v.source.path},
		Timeout: passTimeout(framesDuration(v.Frames, v.canvas.Rate), v.cost()/float64(v.Frames)*v.canvas.Rate.Float()),
	}
}

// filters is the chain from the trimmed source to the canvas.
func (v *VideoPart) filters() []string {
	var chain []string
	video := v.source.info.Video
	if video.Interlaced() {
		parity := map[string]string{"tt": "tff", "bt": "tff", "bb": "bff", "tb": "bff"}[video.FieldOrder]
		chain = append(chain, "bwdif=mode=send_frame:parity="+parity+":deint=all")
	}
	// round=up shows, in every output frame, the latest source frame that has
	// begun by then; start_time=0 repeats the first frame where the video starts
	// late, and drops what lies before.
	origin := v.start + v.source.info.Zero.Seconds() + v.tolerance()
	timing := []string{
		"settb=1/1000000",
		fmt.Sprintf("setpts='max(0,(PTS*TB-(%s))/%s/TB)'", decimal(origin), decimal(v.speed)),
		fmt.Sprintf("fps=%s:round=up:start_time=0", v.canvas.Rate),
	}
	picture := v.picture()
	tail := []string{
		"tpad=stop_mode=clone:stop=-1", // a video shorter than its sound stands still at the end
		fmt.Sprintf("trim=end_frame=%d", v.Frames),
		"setparams=range=tv:colorspace=bt709:color_primaries=bt709:color_trc=bt709:field_mode=prog",
	}
	if v.first == v.last {
		// A single picture, perhaps long over when the part begins: the fps filter
		// would drop what ends before its start.
		still := fmt.Sprintf("setpts='N*1000000*%d/%d'", v.canvas.Rate.Den, v.canvas.Rate.Num)
		chain = append(append(chain, picture...), "loop=loop=-1:size=1", "settb=1/1000000", still, "fps="+v.canvas.Rate.String())
		return append(chain, tail[1:]...)
	}
	if v.fps() >= v.canvas.Rate.Float()/v.speed*0.999 {
		chain = append(append(chain, timing...), picture...) // frames are dropped: do it before they cost anything
	} else {
		chain = append(append(chain, picture...), timing...) // frames are repeated: do it after they cost anything
	}
	return append(chain, tail...)
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
func (v *VideoPart) cost() float64 {
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
