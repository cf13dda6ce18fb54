// Segments that are not a straight line through their source: reversed, with a changing speed, or smooth. It lists what
// each frame shows, and writes the expressions that make ffmpeg show it.

package engine

import (
	"fmt"
	"math"
	"sort"
	"strings"

	"cutroom/internal/film/media"
)

// at returns how far the segment has played when its frame begins, in source seconds, and its speed there.
func (p *placed) at(frame int64, rate media.Rational) (played, speed float64) {
	if p.pace != nil {
		return p.pace.At(float64(frame) / rate.Float())
	}
	return float64(frame) * p.segment.Speed / rate.Float(), p.segment.Speed
}

// plain reports whether the segment plays as fast as its source.
func (p *placed) plain() bool { return p.segment.Speed == 1 && p.pace == nil }

// turn sets the instant of the source from which a reversed segment plays backwards.
//
// At speed 1 it is where the same segment would end without reverse, so that its frames and samples are the same ones
// in reverse order. At other speeds it is where it would end at speed 1 and at the source's own rate.
func (p *placed) turn(rate media.Rational) {
	if p.plain() {
		p.turned = p.start + float64(p.frames)/rate.Float()
		return
	}
	p.turned = p.out.Seconds()
	if video := p.source.info.Video; video != nil && rate.Float() >= coarseRate {
		step := 1 / canvasRate(video).Float()
		anchor := video.start(0, p.source.info.Zero)
		begin := anchor + float64(gridLine(p.in.Seconds(), anchor, step))*step
		p.turned = begin + math.Floor((p.out-p.in).Seconds()/step+roundingUp)*step
	}
}

// mix is what a frame shows: two neighbouring pictures of the source, or one twice.
type mix struct {
	lower, upper int     // indexes into videoInfo.Starts
	weight       float64 // of the upper picture
}

// mixes returns what each frame of the segment shows if that is not a straight line through the source, and nil if it
// is: if the segment is reversed, changes its speed, or smooth changes at least one frame.
func (p *placed) mixes(rate media.Rational) []mix {
	s := p.segment
	curved := s.Reverse || p.pace != nil
	if !curved && !s.Smooth {
		return nil
	}
	all := make([]mix, p.frames)
	pictures := newPictures(p)
	smoothed := false
	for i := range all {
		played, speed := p.at(int64(i), rate)
		step := speed / rate.Float()
		m := &all[i]
		n := pictures.shown(played, p.frames, int64(i), toleranceOf(step, pictures.usual), rate)
		*m = mix{lower: n, upper: n}
		if s.Smooth {
			if b, ok := pictures.between(played, step); ok {
				*m = b
				smoothed = smoothed || b != (mix{lower: n, upper: n})
			}
		}
		if i > 0 { // rounding must not swap the order of pictures
			before := all[i-1]
			if s.Reverse {
				m.lower, m.upper = min(m.lower, before.lower), min(m.upper, before.upper)
			} else {
				m.lower, m.upper = max(m.lower, before.lower), max(m.upper, before.upper)
			}
		}
		if m.lower == m.upper {
			m.weight = 0
		}
	}
	if !curved && !smoothed {
		return nil
	}
	return all
}

// pictures finds the pictures of a segment. Those of a reversed segment are mirrored in time: picture n begins as long
// after the start of the reversed range as it ends before the end of the original range.
type pictures struct {
	*placed
	starts      []float64 // relative to Info.Zero, in seconds, and the end of the last picture
	first, last int       // of the trimmed range
	usual       float64   // seconds between pictures
}

func newPictures(p *placed) *pictures {
	video, zero := p.source.info.Video, p.source.info.Zero
	all := &pictures{placed: p, usual: video.usualStep().Seconds()}
	for n := range video.Starts {
		all.starts = append(all.starts, video.start(n, zero))
	}
	end := p.out.Seconds()
	if p.segment.Reverse {
		end = p.turned
	}
	all.first = max(0, all.begunBy(p.in.Seconds()+cutSlack))
	all.last = max(all.first, all.begunBy(end-cutSlack))
	all.starts = append(all.starts, all.starts[len(all.starts)-1]+all.usual)
	return all
}

// begunBy returns the last picture that has begun by t, -1 if none has.
func (p *pictures) begunBy(t float64) int {
	n := len(p.source.info.Video.Starts)
	return sort.Search(n, func(n int) bool { return p.starts[n] > t }) - 1
}

// shown returns the picture of the i-th of n frames, which begins when the given seconds of the source have played.
func (p *pictures) shown(played float64, n, i int64, tolerance float64, rate media.Rational) int {
	switch {
	case !p.segment.Reverse:
		return max(0, p.begunBy(p.start+played+tolerance))
	case p.plain():
		return max(0, p.begunBy(p.start+float64(n-1-i)/rate.Float()+tolerance))
	}
	return p.endedAfter(p.turned - played - tolerance)
}

// endedAfter returns the first picture that ends at t or later, but none beyond the trimmed range.
func (p *pictures) endedAfter(t float64) int {
	return sort.Search(p.last, func(n int) bool { return p.starts[n+1] >= t })
}

// snapped is the share of a picture's duration within which a frame shows the picture alone, inclusive.
const snapped = 0.1 + 1e-6

// between returns the mix of the two pictures between which a frame lies, if both belong to the trimmed range and the
// film has more frames than the source there. step is the source time between frames.
func (p *pictures) between(played, step float64) (m mix, ok bool) {
	const slack = 1e-6
	var from, to int // in playing order
	var weight, duration float64
	if p.segment.Reverse {
		t := p.turned - played
		from = p.endedAfter(t - slack)
		to = from - 1
		duration = p.starts[from+1] - p.starts[from]
		weight = (p.starts[from+1] - t) / duration
	} else {
		t := p.start + played
		from = p.begunBy(t + slack)
		to = from + 1
		if from < 0 {
			return m, false
		}
		duration = p.starts[to] - p.starts[from]
		weight = (t - p.starts[from]) / duration
	}
	if min(from, to) < p.first || max(from, to) > p.last || step >= duration*(1-1e-4) {
		return m, false
	}
	switch {
	case weight <= snapped:
		return mix{lower: from, upper: from}, true
	case weight >= 1-snapped:
		return mix{lower: to, upper: to}, true
	case p.segment.Reverse:
		return mix{lower: to, upper: from, weight: 1 - weight}, true
	}
	return mix{lower: from, upper: to, weight: weight}, true
}

// maxReversed is how many bytes of pictures ffmpeg may hold to reverse a part. Two 1080p encoders that each hold that
// much fit into the memory of four cores.
const maxReversed = 380 << 20

// partOverhead is how many pictures could be decoded in the time that one more process costs.
const partOverhead = 30

// mixedChunks splits a segment that is not a straight line through its source. It chooses the splits with which the
// parts decode the fewest pictures, because each part starts decoding at the key frame before its first picture. Parts
// of a reversed segment are short enough for their pictures to fit into memory, so they decode a long group of pictures
// more than once.
func (p *placed) mixedChunks(canvas Canvas) []span {
	longest := int64(math.Round(chunkSeconds * canvas.Rate.Float()))
	if p.segment.Reverse {
		longest = min(longest, mostReversed(canvas))
	}
	video := p.source.info.Video
	// begins is where decoding begins for each of the source's pictures.
	begins := make([]int, len(video.Starts))
	for _, k := range video.Keys {
		n := video.visibleAt(k.Seconds()+1e-6, 0)
		begins[n] = n
	}
	for n := 1; n < len(begins); n++ {
		begins[n] = max(begins[n], begins[n-1])
	}
	from, to := p.join.Overlap(), p.frames-p.next.Overlap()
	// rest[n] is the least cost of the frames from n on, if a part begins there, and ends[n] is where that part ends.
	rest, ends := make([]int, p.frames+1), make([]int64, p.frames)
	for n := to - 1; n >= from; n-- {
		rest[n] = math.MaxInt
		for end := min(to, n+longest); end > n; end-- {
			first, last := p.mixed[n].lower, p.mixed[end-1].upper
			if p.segment.Reverse {
				first, last = p.mixed[end-1].lower, p.mixed[n].upper
			}
			if cost := last - begins[first] + partOverhead + rest[end]; cost < rest[n] {
				rest[n], ends[n] = cost, end
			}
		}
	}
	var all []span
	for n := from; n < to; n = ends[n] {
		all = append(all, span{n, ends[n]})
	}
	return all
}

// mostReversed returns how many frames of a canvas ffmpeg may hold, at least a few: shorter parts decode the same
// pictures over and over.
func mostReversed(canvas Canvas) int64 {
	return max(12, maxReversed/(canvas.pixels()*3/2))
}

// inOrder returns the mixes of some frames in the order in which the source has the pictures.
func (p *placed) inOrder(c span) []mix {
	own := append([]mix(nil), p.mixed[c.from:c.to]...)
	if p.segment.Reverse {
		for i, j := 0, len(own)-1; i < j; i, j = i+1, j-1 {
			own[i], own[j] = own[j], own[i]
		}
	}
	return own
}

// blends reports whether a frame shows two pictures.
func blends(mixes []mix) bool {
	for _, m := range mixes {
		if m.lower != m.upper {
			return true
		}
	}
	return false
}

// lineOf returns an expression for the first frame that shows the picture with time PTS, in source microseconds: a
// search among the times of the pictures shown. So a picture that the decoder loses shifts no other.
func (s *shot) lineOf(picture func(mix) int) string {
	var steps []step
	for j, m := range s.mixes {
		at := s.source.info.Video.microsAt(picture(m))
		if n := len(steps); n == 0 || steps[n-1].until < at {
			steps = append(steps, step{at, fmt.Sprint(j)})
		}
	}
	return search("PTS", append(steps, step{value: fmt.Sprint(s.frames)}))
}

// weights returns an expression for the upper picture's weight in frame N.
func (s *shot) weights() string {
	var steps []step
	for j, m := range s.mixes {
		value := "0"
		if m.weight > 0 {
			value = strings.TrimRight(fmt.Sprintf("%.4f", m.weight), "0")
		}
		if n := len(steps); n > 0 && steps[n-1].value == value {
			steps[n-1].until = int64(j)
			continue
		}
		steps = append(steps, step{int64(j), value})
	}
	return search("N", steps)
}

// step is a value of a step function, up to and including a place.
type step struct {
	until int64
	value string
}

// search returns an expression for a step function of a variable, as a balanced tree of comparisons. The last step has
// no end.
func search(variable string, steps []step) string {
	if len(steps) == 1 {
		return steps[0].value
	}
	half := len(steps) / 2
	return fmt.Sprintf("if(lte(%s,%d),%s,%s)", variable, steps[half-1].until, search(variable, steps[:half]), search(variable, steps[half:]))
}

// blending returns the filters that mix the upper picture of each frame into the lower one. lower and upper are the
// timing filters: they turn copies of one stream of pictures into the lower and the upper pictures. The stream's colour
// tags have to be those of the mask. n numbers the labels.
func (s *shot) blending(n int, lower, upper []string) string {
	below, above, under, over, mask := label("below", n), label("above", n), label("under", n), label("over", n), label("blend", n)
	return neutral + fmt.Sprintf(",split[%s][%s];", below, above) +
		fmt.Sprintf("[%s]%s[%s];", below, strings.Join(lower, ","), under) +
		fmt.Sprintf("[%s]%s[%s];", above, strings.Join(upper, ","), over) +
		weightMask(s.canvas, s.frames, 16, 16, s.weights(), mask) + ";" +
		fmt.Sprintf("[%s][%s][%s]maskedmerge", under, over, mask)
}
