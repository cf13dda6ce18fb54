package media

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"cutroom/internal/media/container"
)

// Measured is what a stream's packets say, whatever its header claims. Nothing
// is decoded. Packets that the container marks for discarding (before the start
// of an edit list, codec priming) count as Discarded, and in Extent.
type Measured struct {
	Index    int
	Type     string // "video" or "audio"
	Codec    string // ffmpeg's name, "" when it knows none
	Cover    bool   // cover art, not video to play
	TimeBase Rational

	// First and End are the presentation times between which a decoder yields
	// frames or samples: start of the first packet, end of the last, less what
	// audio decoders drop there (encoder delay and padding of MP3 and Opus). Opus
	// in webm hides its delay from the packets: First is then up to 7 ms early.
	First, End         time.Duration
	Packets, Discarded int64

	// Extent is what the packets last without anything dropped: the longer of what
	// their times span and what their samples take at the sample rate. No clock or
	// edit list of a container shortens it. SampleRate and
	// Channels are 0 for video.
	Extent     time.Duration
	SampleRate int64
	Channels   int64

	// Starts are the starts of all packets in TimeBase, in presentation order, and
	// Keyframes the presentation times of keyframes, ascending. Of each there are at
	// most the first million, and none but of the streams asked for.
	Starts    []int64
	Keyframes []time.Duration
}

// Duration is End - First.
func (m Measured) Duration() time.Duration { return m.End - m.First }

// MeasureOptions says what beyond the sums is wanted, and what the scan may cost.
type MeasureOptions struct {
	FramesOf    []int // indexes of the streams whose Starts and Keyframes are collected
	IgnoreEdits bool  // show every packet that an mp4 holds, as if it had no edit list

	MaxPackets     int64         // beyond it the scan ends with ErrTooManyPackets; 0 is no limit
	MaxMemoryBytes int64         // of ffprobe; 0 is that of any other process
	Timeout        time.Duration // 0 is five minutes
}

// ErrTooManyPackets means that a file has more packets than it may have.
var ErrTooManyPackets = fmt.Errorf("%w: too many packets", ErrNotMedia)

// maxFrames bounds what a stream of a hostile file can make us remember: 4.6 hours
// of intra-only video at 60 frames a second.
const maxFrames = 1_000_000

// Measure scans the packets of all audio and video streams of a file of the
// given kind in one reading and returns one value a stream, ordered by index. A
// stream without packets is there with Packets 0. Memory stays constant but for the
// frames asked for, time is
// that of reading the file once. The error wraps ErrNotMedia when the file
// cannot be demuxed, and ErrTimeout when that takes too long.
func (r *Runner) Measure(ctx context.Context, path string, kind container.Kind, opts MeasureOptions) ([]Measured, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("measure: %w", err)
	}
	if kind == container.Unknown {
		return nil, fmt.Errorf("measure: %w: unknown magic bytes", ErrNotMedia)
	}
	scan := newPacketScan(opts)
	args := append([]string{"-hide_banner", "-loglevel", "error"}, r.maxPixels()...)
	args = append(args, openArgs(kind, path)...)
	if opts.IgnoreEdits && kind == container.MP4 {
		args = append(args, "-ignore_editlist", "1")
	}
	args = append(args, "-show_entries",
		"packet=stream_index,pts,dts,duration,size,flags:packet_side_data=skip_samples,discard_padding:"+
			"stream=index,codec_type,codec_name,profile,sample_rate,channels,bits_per_sample,time_base:stream_disposition=attached_pic",
		"-print_format", "compact", inputURL(path))
	_, err = r.run(ctx, command{
		name: "measure", binary: r.ffprobe, args: args, reads: []string{path}, stdout: scan,
		timeout: cmp.Or(opts.Timeout, measureTimeout), memory: opts.MaxMemoryBytes,
	})
	if err != nil {
		return nil, notMediaIfExit(err)
	}
	return scan.finish(), nil
}

// packetScan reads ffprobe's compact output as it comes:
//
//	packet|stream_index=0|pts=0|dts=-1024|duration=512|size=787|flags=K_
//	packet|stream_index=1|pts=0|dts=0|duration=1152|size=192|flags=K_|side_data|skip_samples=1105|discard_padding=0
//	stream|index=0|codec_name=h264|profile=High|codec_type=video|time_base=1/15360|disposition:attached_pic=0
//	stream|index=1|codec_name=aac|profile=LC|codec_type=audio|sample_rate=48000|channels=2|bits_per_sample=0|time_base=1/48000|disposition:attached_pic=0
//
// The stream lines come last, so everything is counted in ticks until then.
// Since ffmpeg 7 the fields of side data carry their section before a colon
// (side_datum/skip_samples:skip_samples=1105).
type packetScan struct {
	opts    MeasureOptions
	packets int64
	lines   lineSplitter
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
	if !s.lines.split(p, maxScanLine, s.take) {
		return 0, fmt.Errorf("%w: a packet line of more than %d bytes", ErrNotMedia, maxScanLine)
	}
	if s.opts.MaxPackets > 0 && s.packets > s.opts.MaxPackets {
		return 0, ErrTooManyPackets
	}
	return len(p), nil
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
	s.packets++
	if st := s.at(index); st != nil {
		st.add(p)
	}
}

// at is the scan of a stream, nil where there are too many.
func (s *packetScan) at(index int) *streamScan {
	st := s.streams[index]
	if st == nil && index >= 0 && len(s.streams) < maxScanStreams {
		st = &streamScan{frames: slices.Contains(s.opts.FramesOf, index)}
		s.streams[index] = st
	}
	return st
}

// maxScanStreams bounds the streams remembered; the muxers of real devices stay
// far below.
const maxScanStreams = 256

func (s *packetScan) stream(text string) {
	index := -1
	var h streamHeader
	for field := range strings.SplitSeq(text, "|") {
		key, value, _ := strings.Cut(field, "=")
		key = key[strings.LastIndexByte(key, ':')+1:]
		n, _ := strconv.ParseInt(value, 10, 64) // 0 where the file does not say
		switch key {
		case "index":
			index = int(n)
		case "codec_type":
			h.kind = value
		case "codec_name":
			h.codec = known(value)
		case "profile":
			h.profile = value
		case "sample_rate":
			h.rate = n
		case "channels":
			h.channels = n
		case "bits_per_sample":
			h.bits = n
		case "time_base":
			h.base = parseRational(value)
		case "attached_pic":
			h.cover = n != 0
		}
	}
	if st := s.at(index); st != nil {
		st.streamHeader = h
	}
}

// finish returns the audio and video streams ordered by index.
func (s *packetScan) finish() []Measured {
	var all []Measured
	for _, i := range slices.Sorted(maps.Keys(s.streams)) {
		if st := s.streams[i]; st.kind == "video" || st.kind == "audio" {
			m := st.finish()
			m.Index = i
			all = append(all, m)
		}
	}
	return all
}

// streamHeader is what the header says of a stream.
type streamHeader struct {
	kind, codec, profile string
	base                 Rational
	rate, channels, bits int64 // of audio; 0 where unknown, bits also where it is compressed
	cover                bool
}

// samples is how many samples a channel have, by packets and bytes; 0 where the
// codec does not say.
func (h streamHeader) samples(packets, bytes int64) int64 {
	if h.bits > 0 && h.channels > 0 {
		return bytes * 8 / (h.bits * h.channels)
	}
	switch h.codec {
	case "aac":
		if strings.HasPrefix(h.profile, "HE-AAC") {
			return packets * 2048
		}
		return packets * 1024
	case "mp3":
		if h.rate < 32000 {
			return packets * 576
		}
		return packets * 1152
	case "alac":
		return packets * 4096
	case "ac3", "eac3":
		return packets * 1536
	case "amr_nb":
		return packets * 160
	case "amr_wb":
		return packets * 320
	}
	return 0
}

type packet struct {
	pts, dts, duration, size, skip, trim int64
	key, discard                         bool
}

// streamScan sums up one stream. Packets come in decoding order; a short heap
// puts them in presentation order, which is all the memory a stream needs.
type streamScan struct {
	streamHeader
	frames bool // are remembered

	packets, discarded, size int64
	first, end               int64 // of what is shown
	least, most              int64 // first and end of all there is
	skip, trim               int64
	longest, last            int64 // durations of the longest packet and of the one that ends last

	order            tickHeap
	previous         int64
	steps            int64
	shortest         int64
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
	if s.packets+s.discarded == 0 {
		s.least, s.most = p.pts, p.pts
	}
	s.least, s.most = min(s.least, p.pts), max(s.most, p.pts+max(p.duration, 0))
	s.size += p.size
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
	heap.Push(&s.order, p.pts)
	if len(s.order) > reorderDepth {
		s.step(heap.Pop(&s.order).(int64))
	}
	if s.frames && p.key && len(s.keyframeTicks) < maxFrames {
		s.keyframeTicks = append(s.keyframeTicks, p.pts)
	}
}

// step takes the next start in presentation order.
func (s *streamScan) step(pts int64) {
	s.steps++
	if s.frames && len(s.starts) < maxFrames {
		s.starts = append(s.starts, pts)
	}
	if s.steps > 1 {
		d := pts - s.previous
		if d > 0 && (s.shortest == 0 || d < s.shortest) {
			s.shortest = d
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
		Type: s.kind, Codec: s.codec, Cover: s.cover, TimeBase: s.base, SampleRate: s.rate, Channels: s.channels,
		First: ticksToDuration(s.first, s.base), End: ticksToDuration(s.end, s.base),
		Packets: s.packets, Discarded: s.discarded, Starts: s.starts,
		Extent: between(ticksToDuration(s.least, s.base), ticksToDuration(max(s.most, s.end), s.base)),
	}
	if sample := (Rational{1, s.rate}); sample.Known() && s.packets+s.discarded > 0 {
		m.Extent = max(m.Extent, ticksToDuration(s.samples(s.packets+s.discarded, s.size), sample))
		m.First += ticksToDuration(s.skip, sample)
		// The packets of Ogg, and since ffmpeg 8 of mp4 and webm, are already shortened
		// by what is dropped; those of MP3 never are.
		shortened := ticksToDuration(s.longest-s.last, s.base)
		m.End = max(m.First, m.End-max(0, ticksToDuration(s.trim, sample)-shortened))
	}
	for _, t := range slices.Sorted(slices.Values(s.keyframeTicks)) {
		m.Keyframes = append(m.Keyframes, ticksToDuration(t, s.base))
	}
	return m
}

// between is how long it is from one time to another, at most what a Duration
// can hold.
func between(from, to time.Duration) time.Duration {
	if d := to - from; d >= 0 {
		return d
	}
	return math.MaxInt64
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
