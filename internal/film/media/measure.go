// Describes streams by their packets: runs ffprobe over all packets, parses its output as it arrives, and bounds
// memory, packets and streams.

package media

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"cutroom/internal/film/media/container"
)

// Measured describes a stream by its packets instead of its header. Nothing is decoded. Packets that the container
// marks for discarding (before the start of an edit list, codec priming) count in Discarded, Samples and Span.
type Measured struct {
	Index int
	Type  string // "video" or "audio"
	Codec string // ffmpeg's name, "" when it knows none
	Cover bool   // cover art, not video to play

	// First and End are the presentation times between which a decoder yields frames or samples: from the start of the
	// first packet to the end of the last, without the samples that audio decoders drop (encoder delay and padding of
	// MP3 and Opus). Packets of Opus in webm do not show its delay, so First may be 7 ms early.
	First, End         time.Duration
	Packets, Discarded int64
	Bytes              int64 // of all packets, discarded ones included

	// Span is how long the packets last by their times if nothing is dropped. A container's clock may claim
	// anything.
	Span       time.Duration
	SampleRate int64 // 0 for video, like Channels
	Channels   int64
	// Samples is how long the samples of all packets last, whatever their times, and 0 if the codec does not
	// determine how many samples a packet contains. See Runner.DecodedLength for those.
	Samples time.Duration
	// Clockless is set for sound of several joined files, whose packets' times do not tell where they belong. Span,
	// Samples and End then come from decoding it.
	Clockless bool

	// Gaps are places where two neighbouring packets begin much further apart than earlier packets. Only the first few
	// thousand are kept.
	Gaps []Gap

	// steady describes the same sound if its clock only jitters, counted from the mean of its packets' times; else it
	// is nil.
	steady *Measured

	leading time.Duration // from the end of the first packet to the start of the second

	// Starts are the starts of all packets in ticks of the stream's time base, in presentation order, and Keyframes the
	// ascending presentation times of key frames. Only a Probe sets them, for video, and keeps at most the first
	// million of each.
	Starts    []int64
	Keyframes []time.Duration
	// Untimed is how many of Starts precede a Matroska file's time 0. ffmpeg returns their packets without times, so
	// Step, in ticks, is assumed to lie between them. ffmpeg decodes them first, but gives them the times of the frames
	// that follow.
	Untimed int
	Step    int64
	// Lead is how many of Starts precede the first key frame, if the stream's first packet is not a key frame. Nothing
	// can decode those frames.
	Lead int
}

// Gap is the time from the start of a packet to the start of the next.
type Gap struct{ From, To time.Duration }

// Duration is End - First.
func (m Measured) Duration() time.Duration { return m.End - m.First }

// MeasureOptions configures how to read a file and how much that may cost.
type MeasureOptions struct {
	IgnoreEdits bool // read every packet of an mp4, as if it had no edit list

	MaxPackets     int64         // a scan with more ends with ErrTooManyPackets; 0 means no limit
	MaxStreams     int           // without covers; a file with more is ErrTooManyStreams; 0 means no limit
	MaxMemoryBytes int64         // of ffprobe; 0 means the limit of any other process
	Timeout        time.Duration // 0 means five minutes
}

// ErrTooManyPackets means that a file exceeds the limit on packets.
var ErrTooManyPackets = fmt.Errorf("%w: too many packets", ErrNotMedia)

// ErrTooManyStreams means that a file exceeds the limit on streams.
var ErrTooManyStreams = fmt.Errorf("%w: too many streams", ErrNotMedia)

// Limits on what the scan of a hostile file keeps in memory.
const (
	maxFrames    = 1_000_000     // of a stream: 4.6 hours of intra-only video at 60 frames a second
	maxAllFrames = 2 * maxFrames // of a file: many tracks may refer to the same few bytes
	maxGaps      = 4096          // of a stream
)

// Measure reads the packets of all audio and video streams of a file of the given kind once. It returns one value per
// stream, ordered by index, even for a stream without packets. Its memory is constant. The error wraps ErrNotMedia if
// the file cannot be demuxed, and ErrTimeout if that takes too long.
func (r *Runner) Measure(ctx context.Context, path string, kind container.Kind, opts MeasureOptions) ([]Measured, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("measure: %w", err)
	}
	scan := newPacketScan(opts)
	if _, err := r.scan(ctx, "measure", path, kind, InputArgs(kind, path), scan); err != nil {
		return nil, err
	}
	if opts.MaxStreams > 0 && (scan.headers-scan.covers > opts.MaxStreams || scan.headers > maxScanStreams) {
		return nil, fmt.Errorf("measure: %w", ErrTooManyStreams)
	}
	all := scan.finish()
	for i := range all {
		if err := r.recount(ctx, path, kind, opts, &all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// scanned lists the fields that ffprobe prints. It includes only one tag, because other tags may be larger than
// everything else.
const scanned = "packet=codec_type,stream_index,pts,dts,duration,size,flags:packet_side_data=skip_samples,discard_padding:" +
	"stream=index,codec_name,codec_type,profile,width,height,sample_aspect_ratio,pix_fmt,bits_per_raw_sample," +
	"color_range,color_space,color_transfer,color_primaries,field_order,r_frame_rate,avg_frame_rate,time_base," +
	"start_time,duration,nb_frames,sample_rate,channels,channel_layout,bits_per_sample:" +
	"stream_disposition=default,attached_pic,timed_thumbnails:" +
	"stream_side_data=displaymatrix,dv_profile,dv_bl_signal_compatibility_id:stream_tags=enc_key_id,alpha_mode:" +
	"format=duration,start_time"

// scan runs ffprobe over the headers and packets of a file, confined, with the demuxer of its kind. input comes from
// InputArgs or linkArgs, and path is absolute.
func (r *Runner) scan(ctx context.Context, name, path string, kind container.Kind, input []string, s *packetScan) (outcome, error) {
	if kind == container.Unknown {
		return outcome{}, fmt.Errorf("%s: %w: unknown magic bytes", name, ErrNotMedia)
	}
	s.joins = kind == container.Ogg || kind == container.FLAC || kind == container.Matroska
	s.timed = kind == container.Matroska
	args := append([]string{"-hide_banner", "-loglevel", "error"}, r.maxPixels()...)
	if s.opts.IgnoreEdits && kind == container.MP4 {
		args = append(args, "-ignore_editlist", "1")
	}
	args = append(append(args, "-show_entries", scanned, "-print_format", "compact"), input...)
	out, err := r.run(ctx, r.ffprobe, Pass{Name: name, Args: args, Inputs: []string{path}, Stdout: s,
		Timeout: cmp.Or(s.opts.Timeout, measureTimeout), MaxMemoryBytes: s.opts.MaxMemoryBytes})
	return out, notMediaIfExit(err)
}

// packetScan parses ffprobe's compact output as it arrives:
//
//	packet|codec_type=video|stream_index=0|pts=0|dts=-1024|duration=512|size=787|flags=K_
//	packet|codec_type=audio|stream_index=1|pts=0|dts=0|duration=1152|size=192|flags=K_|side_data|skip_samples=1105|discard_padding=0
//	stream|index=0|codec_name=h264|profile=High|codec_type=video|width=320|time_base=1/15360|side_data|displaymatrix=\n00000000: ...
//	stream|index=1|codec_name=aac|profile=LC|codec_type=audio|sample_rate=48000|channels=2|disposition:attached_pic=0
//	format|start_time=0.000000|duration=5.016000
//
// The lines of streams follow those of packets, so times stay in ticks until then. Since ffmpeg 7 the fields of side
// data have their section before a colon (side_datum/skip_samples:skip_samples=1105).
type packetScan struct {
	opts       MeasureOptions
	wantFrames bool // remember the frames of video
	joins      bool // the container's clock may restart
	timed      bool // every packet of the container has a time
	packets    int64
	frames     int // kept in memory
	heard      int // packets of sound whose times are kept in memory
	lines      lineSplitter
	streams    map[int]*streamScan
	headers    int // streams in the file
	covers     int // of these, cover art
	format     header
}

func newPacketScan(opts MeasureOptions) *packetScan {
	return &packetScan{opts: opts, streams: map[int]*streamScan{}}
}

// maxScanLine is far above any line that ffprobe prints for these fields.
const maxScanLine = 64 << 10

// Write parses the next piece of output. It fails if a line is too long or if there are too many packets, which
// ends ffprobe.
func (s *packetScan) Write(p []byte) (int, error) {
	if !s.lines.split(p, maxScanLine, s.take) {
		return 0, fmt.Errorf("%w: a line of more than %d bytes", ErrNotMedia, maxScanLine)
	}
	if s.opts.MaxPackets > 0 && s.packets > s.opts.MaxPackets {
		return 0, ErrTooManyPackets
	}
	return len(p), nil
}

func (s *packetScan) take(line []byte) {
	text := string(line)
	switch section, _, _ := strings.Cut(text, "|"); section {
	case "packet":
		s.packet(text)
	case "stream":
		h := header(maps.Collect(fields(text)))
		if index, err := strconv.Atoi(h["index"]); err == nil {
			s.headers++
			if h.number("attached_pic") != 0 {
				s.covers++
			}
			if st := s.at(index); st != nil {
				st.header = h
			}
		}
	case "format":
		s.format = maps.Collect(fields(text))
	}
}

// fields returns the names and values of a line.
func fields(line string) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for field := range strings.SplitSeq(line, "|") {
			name, value, _ := strings.Cut(field, "=")
			if !yield(name[strings.LastIndexByte(name, ':')+1:], value) {
				return
			}
		}
	}
}

// noTicks represents an unknown timestamp.
const noTicks = -1 << 63

func (s *packetScan) packet(text string) {
	p := packet{pts: noTicks, dts: noTicks}
	index := -1
	for name, value := range fields(text) {
		switch name {
		case "codec_type":
			p.sound = value == "audio"
			p.remember = s.wantFrames && (value == "video" && s.frames < maxAllFrames || p.sound && s.heard < maxFrames)
			continue
		case "flags":
			p.key, p.discard = strings.HasPrefix(value, "K"), strings.Contains(value, "D")
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			continue // N/A
		}
		switch name {
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
	switch {
	case p.remember && p.sound:
		s.heard++
	case p.remember:
		s.frames++
	}
	if st := s.at(index); st != nil {
		st.add(p)
	}
}

// at returns the scan of a stream, or nil if there are too many streams.
func (s *packetScan) at(index int) *streamScan {
	st := s.streams[index]
	if st == nil && index >= 0 && len(s.streams) < maxScanStreams {
		st = &streamScan{mayRestart: s.joins, timed: s.timed}
		s.streams[index] = st
	}
	return st
}

// maxScanStreams bounds the streams kept in memory. Real devices write far fewer.
const maxScanStreams = 256

// finish returns the audio and video streams ordered by index.
func (s *packetScan) finish() []Measured {
	var all []Measured
	for _, i := range slices.Sorted(maps.Keys(s.streams)) {
		if st := s.streams[i]; st.header["codec_type"] == "video" || st.header["codec_type"] == "audio" {
			m := st.finish()
			m.Index = i
			if m.steady != nil {
				m.steady.Index = i
			}
			all = append(all, m)
		}
	}
	return all
}

// header contains the fields that ffprobe prints for a stream or for the file, under ffprobe's own names.
type header map[string]string

// text returns "" for a value that ffprobe does not know.
func (h header) text(name string) string {
	switch v := h[name]; v {
	case "N/A", "unknown", "reserved":
		return ""
	default:
		return v
	}
}

// number returns 0 for a value that ffprobe does not know.
func (h header) number(name string) int64 {
	n, _ := strconv.ParseInt(h[name], 10, 64)
	return n
}

// samples returns how many samples each audio channel has in the given packets and bytes, or 0 if that does not follow
// from the codec and its profile. Encoders of FLAC, Opus, Vorbis and AMR choose how many samples a packet has, and so
// do files with ADPCM and GSM, whose packets are as long as their header says.
func (h header) samples(packets, bytes int64) int64 {
	codec, each := h["codec_name"], int64(0)
	if frame := h.number("bits_per_sample") * h.number("channels"); frame > 0 && strings.HasPrefix(codec, "pcm_") {
		return bytes * 8 / frame
	}
	switch codec {
	case "aac":
		each = map[string]int64{"LC": 1024, "Main": 1024, "SSR": 1024, "LTP": 1024, "HE-AAC": 2048, "HE-AACv2": 2048,
			"LD": 512, "ELD": 512}[h["profile"]]
	case "mp3":
		each = 1152
		if h.number("sample_rate") < 32000 {
			each = 576
		}
	case "alac":
		each = 4096
	case "ac3", "eac3":
		each = 1536
	}
	return packets * each
}
