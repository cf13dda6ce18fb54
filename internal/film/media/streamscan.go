// Sums up one stream packet by packet: presentation order, gaps, key frames, and clocks that restart where files were
// joined.

package media

import (
	"math"
	"slices"
	"time"
)

type packet struct {
	pts, dts, duration, size, skip, trim int64
	key, discard, remember, sound        bool
}

// streamScan summarises one stream. Packets arrive in decoding order. The scan holds back a few starts to sort them
// into presentation order, and needs no other memory.
type streamScan struct {
	header header

	packets, discarded, size int64
	first, end               int64 // of the packets that are shown
	earliest, latest         int64 // of all packets
	skip, trim               int64
	longest, last            int64 // durations of the longest packet and of the one that ends last
	endsWithDuration         bool

	order    []int64 // starts held back, ascending
	previous int64   // last start taken
	steps    int64   // number of starts taken
	gaps     [][2]int64
	shortest int64 // smallest distance between two starts, 0 before the first
	leading  int64 // distance between the first two

	starts, keyframes []int64 // of pictures, in decoding order
	heard             []int64 // starts of sound

	decoding  int64 // latest decoding time
	restarted bool  // the clock restarted
	headless  bool  // the first packet is shown but is not a key frame

	timed   bool // every packet of the container has a time, so one that ffmpeg returns without lies before time 0
	untimed int  // frames before time 0

	// The clock of a chained Ogg, or of a WebM appended to another, restarts at each join.
	mayRestart bool
	rejoined   bool
	shift      int64 // from the clock's times to continuous times
	latestAt   int64 // start of the previous packet, continuous
}

// restartSteps is how many packets the clock of sound must go back to count as restarted. Packets of sound are never
// reordered.
const restartSteps = 3

// continuous makes the times of a packet after a join follow those before it.
func (s *streamScan) continuous(p *packet) {
	p.pts += s.shift
	if s.packets+s.discarded > 0 && p.pts < s.latestAt-restartSteps*max(1, s.longest) {
		s.shift += s.end - p.pts
		p.pts = s.end
		s.rejoined = true
	}
	s.latestAt = p.pts
}

// reorderDepth is twice the deepest reordering of H.264 and HEVC, 16 frames.
const reorderDepth = 32

func (s *streamScan) add(p packet) {
	if p.pts == noTicks {
		p.pts = p.dts
	}
	if p.pts == noTicks && s.timed && !p.sound {
		if p.key || s.untimed > 0 { // others cannot be decoded
			s.untimed++
		}
		return
	}
	if p.pts == noTicks { // no timestamps at all: assume that packets follow one another
		p.pts = s.end
	}
	if s.mayRestart && p.sound {
		s.continuous(&p)
	}
	if s.packets+s.discarded == 0 {
		s.earliest, s.latest = p.pts, p.pts
		s.headless = !p.key && !p.discard
	}
	s.earliest, s.latest = min(s.earliest, p.pts), max(s.latest, p.pts+max(p.duration, 0))
	s.size += p.size
	if p.dts != noTicks {
		// Earlier than everything before it: a second recording follows the first.
		s.restarted = s.restarted || s.packets > 0 && p.key && p.dts < s.decoding && p.dts <= s.first
		s.decoding = max(s.decoding, p.dts)
	}
	if p.discard {
		s.discarded++
		return
	}
	if s.packets == 0 || p.pts < s.first {
		s.first = p.pts
	}
	if end := p.pts + max(p.duration, 0); s.packets == 0 || end > s.end || end == s.end && p.duration > 0 {
		s.end, s.last, s.endsWithDuration = end, p.duration, p.duration > 0
	}
	s.longest = max(s.longest, p.duration)
	s.packets++
	s.skip += p.skip
	s.trim += p.trim
	at, _ := slices.BinarySearch(s.order, p.pts)
	s.order = slices.Insert(s.order, at, p.pts)
	if len(s.order) > reorderDepth {
		s.step()
	}
	if p.remember && p.sound {
		s.heard = append(s.heard, p.pts)
	} else if p.remember && len(s.starts) < maxFrames {
		s.starts = append(s.starts, p.pts)
		if p.key {
			s.keyframes = append(s.keyframes, p.pts)
		}
	}
}

// step processes the next start in presentation order.
func (s *streamScan) step() {
	next := s.order[0]
	s.order = slices.Delete(s.order, 0, 1)
	if s.steps == 1 {
		s.leading = next - s.previous
	}
	if d := next - s.previous; s.steps > 0 && d > 0 {
		if s.shortest == 0 || d < s.shortest {
			s.shortest = d
		}
		if s.steps > 1 && d/4 > (s.previous-s.first)/(s.steps-1) && len(s.gaps) < maxGaps {
			s.gaps = append(s.gaps, [2]int64{s.previous, next})
		}
	}
	s.previous = next
	s.steps++
}

func (s *streamScan) finish() Measured {
	for len(s.order) > 0 {
		s.step()
	}
	if s.packets > 0 && !s.endsWithDuration {
		s.end += s.shortest // assume that the last packet lasts as long as its neighbours
	}
	slices.Sort(s.starts)
	slices.Sort(s.keyframes)
	if s.untimed > 0 && len(s.starts) > 0 {
		s.first -= int64(s.untimed) * s.shortest
		s.packets += int64(s.untimed)
		s.starts = slices.Concat(make([]int64, s.untimed), s.starts)
		for i := range s.untimed {
			s.starts[i] = s.first + int64(i)*s.shortest
		}
		s.keyframes = slices.Insert(s.keyframes, 0, s.first)
		s.headless = false
	}
	base := parseRational(s.header["time_base"])
	m := Measured{
		Type: s.header["codec_type"], Codec: s.header.text("codec_name"), Cover: s.header.number("attached_pic") != 0,
		SampleRate: s.header.number("sample_rate"), Channels: s.header.number("channels"), Clockless: s.rejoined,
		First: ticksToDuration(s.first, base), End: ticksToDuration(s.end, base),
		Packets: s.packets, Discarded: s.discarded, Bytes: s.size, Starts: s.starts, Untimed: s.untimed, Step: s.shortest,
		Span: between(ticksToDuration(s.earliest, base), ticksToDuration(max(s.latest, s.end), base)),
	}
	if sample := (Rational{1, m.SampleRate}); sample.Known() && s.packets+s.discarded > 0 {
		m.Samples = ticksToDuration(s.header.samples(s.packets+s.discarded, s.size), sample)
		m.First += ticksToDuration(s.skip, sample)
		// The packets of Ogg, and since ffmpeg 8 of mp4 and webm, are already shortened by the dropped samples;
		// packets of MP3 never are.
		shortened := ticksToDuration(s.longest-s.last, base)
		m.End = max(m.First, m.End-max(0, ticksToDuration(s.trim, sample)-shortened))
	}
	if at, jitters := s.steadyStart(base); jitters {
		steady := m
		steady.First += at - ticksToDuration(s.heard[0], base)
		steady.End += at - ticksToDuration(s.heard[0], base)
		m.steady = &steady
	}
	m.leading = ticksToDuration(s.leading-s.shortest, base)
	for _, g := range s.gaps {
		m.Gaps = append(m.Gaps, Gap{ticksToDuration(g[0], base), ticksToDuration(g[1], base)})
	}
	if s.headless && len(s.keyframes) > 0 {
		m.Lead, _ = slices.BinarySearch(s.starts, s.keyframes[0])
	}
	for _, t := range s.keyframes {
		m.Keyframes = append(m.Keyframes, ticksToDuration(t, base))
	}
	return m
}

// A clock of sound jitters if packets begin early or late but do not stay so: recorders stamp packets when they arrive,
// sometimes several at once. Filling and cutting by such a clock would chop the sound up.
const (
	jitterSlack = 20 * time.Millisecond  // as in Sound.Args: less is not filled or cut
	jitterSpan  = 250 * time.Millisecond // within which packets must return to where they belong
	// maxJitter is the most that the lateness of the earliest and of the latest packet may differ. More is a pause,
	// which stays.
	maxJitter = 200 * time.Millisecond
)

// steadyStart returns where the first packet of sound begins by the mean of all packets' times, if the clock jitters.
// The first time does not count, because recorders stretch the first packet until the second.
func (s *streamScan) steadyStart(base Rational) (at time.Duration, jitters bool) {
	length, unit := s.header.samples(1, 0), Rational{1, s.header.number("sample_rate")} // of each packet
	if length == 0 && s.timed && s.header["codec_name"] == "opus" {
		length, unit = s.longest, base
	}
	if length == 0 || !unit.Known() || int64(len(s.heard)) != s.packets {
		return 0, false
	}
	span := max(1, int(jitterSpan/max(1, ticksToDuration(length, unit))))
	if len(s.heard) < 2*span {
		return 0, false
	}
	const never, always = time.Duration(math.MaxInt64), time.Duration(math.MinInt64)
	first, last := never, always // how late the earliest and the latest packet of all are
	// If a clock stays late, the earliest packet of one span is later than the latest packet of another.
	lowest, highest := always, never
	var sum float64
	for begin := 1; begin < len(s.heard); begin += span {
		earliest, latest := never, always
		for i := begin; i < min(begin+span, len(s.heard)); i++ {
			late := ticksToDuration(s.heard[i]-s.heard[1], base) - ticksToDuration(int64(i-1)*length, unit)
			earliest, latest = min(earliest, late), max(latest, late)
			sum += float64(late)
		}
		first, last = min(first, earliest), max(last, latest)
		lowest, highest = max(lowest, earliest), min(highest, latest)
	}
	if last-first <= jitterSlack || last-first > maxJitter || lowest-highest > jitterSlack {
		return 0, false
	}
	mean := time.Duration(sum / float64(len(s.heard)-1))
	return ticksToDuration(s.heard[1], base) + mean - ticksToDuration(length, unit), true
}

// between returns the time between two moments, or the longest Duration if it does not fit.
func between(from, to time.Duration) time.Duration {
	if d := to - from; d >= 0 {
		return d
	}
	return math.MaxInt64
}
