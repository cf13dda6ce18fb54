package media

import (
	"bytes"
	"container/heap"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Measured is what a stream's packets say, whatever its header claims. Nothing
// is decoded. Packets that the container marks for discarding (before the start
// of an edit list, codec priming) count only as Discarded.
type Measured struct {
	Index    int
	Type     string // "video" or "audio"
	TimeBase Rational

	// First and End are the presentation times between which a decoder yields
	// pictures or samples: start of the first packet, end of the last, less what
	// audio decoders drop there (SkipSamples, TrimSamples). Opus in webm hides its
	// delay from the packets: First is then up to 7 ms early.
	First, End           time.Duration
	FirstTicks, EndTicks int64 // the packets' extent in TimeBase, exact, nothing dropped
	Packets, Discarded   int64
	SizeBytes            int64

	// ShortestStep and LargestGap are the smallest and the largest distance
	// between the starts of neighbouring packets in presentation order. They are
	// equal (to a tick) for a constant rate; 0 with fewer than two packets.
	// LargestGapAt is where that gap begins.
	ShortestStep, LargestGap, LargestGapAt time.Duration

	// SkipSamples and TrimSamples are what an audio decoder drops from the first
	// and the last packets (encoder delay and padding of MP3 and Opus).
	SkipSamples, TrimSamples int64

	// Keyframes are the presentation times of video keyframes, ascending, when
	// asked for.
	Keyframes []time.Duration

	// Starts are the starts of all video packets in TimeBase, in presentation
	// order, when asked for; at most the first million.
	Starts []int64
}

// Duration is End - First.
func (m Measured) Duration() time.Duration { return m.End - m.First }

// MeasureOptions says what beyond the sums is wanted.
type MeasureOptions struct {
	Keyframes bool  // collect Keyframes
	Starts    bool  // collect Starts
	Streams   []int // indexes of the wanted streams; nil is every audio and video stream
}

// maxKeyframes bounds what a hostile file can make us remember: 4.6 hours of
// intra-only film at 60 frames a second.
const maxKeyframes = 1_000_000

// maxStarts bounds Starts likewise.
const maxStarts = 1_000_000

// Measure scans the packets of one stream, given by its index in the file.
// Memory stays constant, time is that of reading the file once. The error wraps
// ErrNotMedia when the file cannot be demuxed or has no such stream.
func (r *Runner) Measure(ctx context.Context, path string, streamIndex int) (Measured, error) {
	all, err := r.MeasureAll(ctx, path, MeasureOptions{Streams: []int{streamIndex}})
	if err != nil {
		return Measured{}, err
	}
	return all[0], nil
}

// MeasureAll scans the packets of several streams in one reading of the file
// and returns one value per stream, ordered by index. A stream without packets
// is there with Packets 0; a stream asked for that the file does not have is an
// error wrapping ErrNotMedia.
func (r *Runner) MeasureAll(ctx context.Context, path string, opts MeasureOptions) ([]Measured, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("measure: %w", err)
	}
	kind, err := Sniff(path)
	if err != nil {
		return nil, fmt.Errorf("measure: %w", err)
	}
	if kind == KindUnknown {
		return nil, fmt.Errorf("measure: %w: unknown magic bytes", ErrNotMedia)
	}
	return r.measure(ctx, path, kind, opts)
}

func (r *Runner) measure(ctx context.Context, path string, kind Kind, opts MeasureOptions) ([]Measured, error) {
	scan := newPacketScan(opts)
	args := append([]string{"-hide_banner", "-loglevel", "error"}, openArgs(kind, path)...)
	if len(opts.Streams) == 1 {
		args = append(args, "-select_streams", strconv.Itoa(opts.Streams[0]))
	}
	args = append(args, "-show_entries",
		"packet=stream_index,pts,dts,duration,size,flags:packet_side_data=skip_samples,discard_padding:stream=index,codec_type,sample_rate,time_base",
		"-print_format", "compact", inputURL(path))
	_, err := r.run(ctx, command{
		name: "measure", binary: r.ffprobe, args: args, reads: []string{path},
		stdout: scan, timeout: r.cfg.MeasureTimeout,
	})
	if err != nil {
		return nil, notMediaIfExit(err)
	}
	return scan.finish()
}

// packetScan reads ffprobe's compact output as it comes:
//
//	packet|stream_index=0|pts=0|dts=-1024|duration=512|size=787|flags=K_
//	packet|stream_index=1|pts=0|dts=0|duration=1152|size=192|flags=K_|side_data|skip_samples=1105|discard_padding=0
//	stream|index=0|codec_type=video|time_base=1/15360
//	stream|index=1|codec_type=audio|sample_rate=48000|time_base=1/48000
//
// The stream lines come last, so everything is counted in ticks until then.
// Since ffmpeg 7 the fields of side data carry their section before a colon
// (side_datum/skip_samples:skip_samples=1105).
type packetScan struct {
	opts    MeasureOptions
	line    []byte
	streams map[int]*streamScan
}

func newPacketScan(opts MeasureOptions) *packetScan {
	return &packetScan{opts: opts, streams: map[int]*streamScan{}}
}

// maxScanLine is far above any line ffprobe prints for the entries asked for.
const maxScanLine = 64 << 10

// Write takes the next piece of output. It fails, and so ends ffprobe, when the
// output is not what ffprobe writes.
func (s *packetScan) Write(p []byte) (int, error) {
	n := len(p)
	for {
		line, rest, complete := bytes.Cut(p, []byte("\n"))
		if !complete {
			break
		}
		if len(s.line) > 0 {
			s.line = append(s.line, line...)
			s.take(s.line)
			s.line = s.line[:0]
		} else {
			s.take(line)
		}
		p = rest
	}
	if len(s.line)+len(p) > maxScanLine {
		return 0, fmt.Errorf("%w: a packet line of more than %d bytes", ErrNotMedia, maxScanLine)
	}
	s.line = append(s.line, p...)
	return n, nil
}

func (s *packetScan) take(line []byte) {
	text := string(line)
	switch {
	case strings.HasPrefix(text, "packet|"):
		s.packet(text)
	case strings.HasPrefix(text, "stream|"):
		s.stream(text)
	}
}

// noTicks stands for a timestamp ffprobe does not know.
const noTicks = -1 << 63

func (s *packetScan) packet(text string) {
	p := packet{pts: noTicks, dts: noTicks}
	index := -1
	for field := range strings.SplitSeq(text, "|") {
		key, value, _ := strings.Cut(field, "=")
		key = key[strings.LastIndexByte(key, ':')+1:]
		if key == "flags" {
			p.key, p.discard = strings.HasPrefix(value, "K"), strings.Contains(value, "D")
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			continue // N/A
		}
		switch key {
		case "stream_index":
			index = int(n)
		case "pts":
			p.pts = n
		case "dts":
			p.dts = n
		case "duration":
			p.duration = n
		case "size":
			p.size = n
		case "skip_samples":
			p.skip = n
		case "discard_padding":
			p.trim = n
		}
	}
	if index < 0 {
		return
	}
	st := s.streams[index]
	if st == nil {
		if len(s.streams) >= maxScanStreams {
			return
		}
		st = &streamScan{keyframes: s.opts.Keyframes, keepStarts: s.opts.Starts}
		s.streams[index] = st
	}
	st.add(p)
}

// maxScanStreams bounds the streams remembered; the muxers of real devices stay
// far below.
const maxScanStreams = 256

func (s *packetScan) stream(text string) {
	index, kind, base, rate := -1, "", Rational{}, int64(0)
	for field := range strings.SplitSeq(text, "|") {
		switch key, value, _ := strings.Cut(field, "="); key {
		case "index":
			if n, err := strconv.Atoi(value); err == nil {
				index = n
			}
		case "codec_type":
			kind = value
		case "sample_rate":
			if n, err := strconv.ParseInt(value, 10, 64); err == nil {
				rate = n
			}
		case "time_base":
			base = parseRational(value)
		}
	}
	if index < 0 || kind != "video" && kind != "audio" {
		delete(s.streams, index)
		return
	}
	st := s.streams[index]
	if st == nil {
		if len(s.streams) >= maxScanStreams {
			return
		}
		st = &streamScan{}
		s.streams[index] = st
	}
	st.kind, st.base, st.rate = kind, base, rate
}

// finish returns the wanted streams ordered by index.
func (s *packetScan) finish() ([]Measured, error) {
	wanted := s.opts.Streams
	if wanted == nil {
		for i, st := range s.streams {
			if st.kind != "" {
				wanted = append(wanted, i)
			}
		}
	}
	wanted = slices.Sorted(slices.Values(wanted))
	all := make([]Measured, 0, len(wanted))
	for _, i := range wanted {
		st := s.streams[i]
		if st == nil || st.kind == "" {
			return nil, fmt.Errorf("measure: %w: no audio or video stream %d", ErrNotMedia, i)
		}
		m := st.finish()
		m.Index = i
		all = append(all, m)
	}
	return all, nil
}

type packet struct {
	pts, dts, duration, size, skip, trim int64
	key, discard                         bool
}

// streamScan sums up one stream. Packets come in decoding order; a short heap
// puts them in presentation order, which is all the memory a stream needs.
type streamScan struct {
	kind string
	base Rational
	rate int64 // samples per second, 0 for video

	keyframes, keepStarts bool

	packets, discarded, size int64
	first, end               int64
	skip, trim               int64

	order            tickHeap
	previous         int64
	steps            int64
	shortest, gap    int64
	gapAt            int64
	keyframeTicks    []int64
	starts           []int64
	endsWithDuration bool
}

// reorderDepth covers the deepest reordering H.264 and HEVC permit (16 frames)
// twice over.
const reorderDepth = 32

func (s *streamScan) add(p packet) {
	if p.pts == noTicks {
		p.pts = p.dts
	}
	if p.pts == noTicks { // no timestamps at all: packets follow each other
		p.pts = s.end
	}
	s.size += p.size
	if p.discard {
		s.discarded++
		return
	}
	if s.packets == 0 || p.pts < s.first {
		s.first = p.pts
	}
	if end := p.pts + max(p.duration, 0); s.packets == 0 || end > s.end || end == s.end && p.duration > 0 {
		s.end, s.endsWithDuration = end, p.duration > 0
	}
	s.packets++
	s.skip += p.skip
	s.trim += p.trim
	heap.Push(&s.order, p.pts)
	if len(s.order) > reorderDepth {
		s.step(heap.Pop(&s.order).(int64))
	}
	if s.keyframes && p.key && len(s.keyframeTicks) < maxKeyframes {
		s.keyframeTicks = append(s.keyframeTicks, p.pts)
	}
}

// step takes the next start in presentation order.
func (s *streamScan) step(pts int64) {
	s.steps++
	if s.keepStarts && len(s.starts) < maxStarts {
		s.starts = append(s.starts, pts)
	}
	if s.steps > 1 {
		d := pts - s.previous
		if d > 0 && (s.shortest == 0 || d < s.shortest) {
			s.shortest = d
		}
		if d > s.gap {
			s.gap, s.gapAt = d, s.previous
		}
	}
	s.previous = pts
}

func (s *streamScan) finish() Measured {
	for len(s.order) > 0 {
		s.step(heap.Pop(&s.order).(int64))
	}
	if s.packets > 0 && !s.endsWithDuration {
		s.end += s.shortest // the last packet lasts as long as its neighbours
	}
	m := Measured{
		Type: s.kind, TimeBase: s.base,
		FirstTicks: s.first, EndTicks: s.end,
		First: ticksToDuration(s.first, s.base), End: ticksToDuration(s.end, s.base),
		Packets: s.packets, Discarded: s.discarded, SizeBytes: s.size,
		ShortestStep: ticksToDuration(s.shortest, s.base), LargestGap: ticksToDuration(s.gap, s.base),
		LargestGapAt: ticksToDuration(s.gapAt, s.base),
		SkipSamples:  s.skip, TrimSamples: s.trim,
	}
	if sample := (Rational{1, s.rate}); sample.Known() && s.packets > 0 {
		m.First += ticksToDuration(s.skip, sample)
		m.End = max(m.First, m.End-ticksToDuration(s.trim, sample))
	}
	if s.kind == "video" {
		for _, t := range slices.Sorted(slices.Values(s.keyframeTicks)) {
			m.Keyframes = append(m.Keyframes, ticksToDuration(t, s.base))
		}
		m.Starts = s.starts
	}
	return m
}

// tickHeap is a min-heap of timestamps.
type tickHeap []int64

func (h tickHeap) Len() int           { return len(h) }
func (h tickHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h tickHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push and Pop are called by container/heap.
func (h *tickHeap) Push(x any) { *h = append(*h, x.(int64)) }
func (h *tickHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
