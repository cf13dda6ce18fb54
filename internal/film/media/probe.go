// Probes a file: headers and packets become the streams to use, or the reason why the file cannot be opened.

package media

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"cutroom/internal/film/media/container"
)

// Probe describes a file: its headers, the streams to use, and the packets of those streams. Durations are claims of
// the headers, except those of Measured.
type Probe struct {
	Kind     container.Kind
	Duration time.Duration // claimed, 0 when the header has none
	Start    time.Duration // earliest timestamp of any stream

	Video *VideoStream // the largest moving video stream, or nil
	Audio *AudioStream // the default or first decodable audio stream, or nil

	VideoPackets, AudioPackets Measured // zero without such a stream

	// Unshown completes "The file ..." with the reason why its pictures cannot be shown. Video is then nil, and Audio
	// may be too.
	Unshown string

	// Unheard is set if the file has sound, but none that can be decoded. Audio is then nil.
	Unheard bool

	// Clockless is set if the clock of the sound cannot be used: the file was joined from several, so the clock
	// restarts or the sample rate changes midway, or the clock jitters. The sound is then what a decoder returns from
	// the start of the file, in order.
	Clockless bool

	Streams int // of all types
}

// VideoStream is a video track as its header describes it.
type VideoStream struct {
	Index         int
	Codec         string // ffmpeg's name: "h264", "hevc", ...
	Width, Height int    // as coded: before pixel shape and rotation

	// Orientation turns the coded frame into the displayed one.
	Orientation Orientation
	SAR         Rational // pixel width/height; 1/1 if the file does not say
	// DisplayWidth and DisplayHeight are the size that a player shows, after pixel shape and rotation. They may be odd.
	DisplayWidth, DisplayHeight int

	AvgFrameRate Rational // frames divided by duration
	FrameRate    Rational // ffmpeg's r_frame_rate: the lowest rate that represents all timestamps
	Frames       int64    // claimed by the container, 0 when it does not say

	PixelFormat    string // with the alpha of VP8 and VP9, which Decoder reads
	BitDepth       int    // bits per sample, 8 when unknown
	ColorRange     string // "tv", "pc" or ""
	ColorSpace     string // "bt709", "bt2020nc", ... or ""
	ColorTransfer  string // "bt709", "smpte2084" (PQ), "arib-std-b67" (HLG), ... or ""
	ColorPrimaries string
	FieldOrder     string // "progressive", "tt", "bb", "tb", "bt" or ""

	TimeBase        Rational
	Start, Duration time.Duration // claimed; Duration is 0 when unknown
	Default         bool
}

// HDR reports whether the transfer function is PQ or HLG, so that an SDR output needs tone-mapping.
func (v *VideoStream) HDR() bool {
	return v.ColorTransfer == "smpte2084" || v.ColorTransfer == "arib-std-b67"
}

// Alpha reports whether the pictures have transparent pixels, or may have them.
func (v *VideoStream) Alpha() bool {
	formats := []string{"yuva", "ya8", "ya16", "gbrap", "rgba", "bgra", "argb", "abgr", "pal8"}
	return slices.ContainsFunc(formats, func(f string) bool { return strings.HasPrefix(v.PixelFormat, f) })
}

// Decoder names the decoder to use, "" for ffmpeg's choice. Its own decoders of VP8 and VP9 ignore alpha.
func (v *VideoStream) Decoder() string {
	if !v.Alpha() {
		return ""
	}
	return map[string]string{"vp8": "libvpx", "vp9": "libvpx-vp9"}[v.Codec]
}

// Interlaced reports whether the header says that each frame contains two fields.
func (v *VideoStream) Interlaced() bool {
	return slices.Contains([]string{"tt", "bb", "tb", "bt"}, v.FieldOrder)
}

// AudioStream is an audio track as its header describes it.
type AudioStream struct {
	Index           int
	Codec           string
	SampleRate      int // Hz
	Channels        int
	Layout          string        // ffmpeg's name for the channels: "stereo", "BL+BR", ...; "" when unknown
	BitDepth        int           // bits of a lossless sample, 0 when unknown
	Frames          int64         // packets claimed by the container, 0 when it does not say
	Start, Duration time.Duration // claimed; Duration is 0 when unknown
	Default         bool
}

// decoder returns the arguments that choose the stream's decoder, none for ffmpeg's choice. ffmpeg mistakes 24-bit
// integers in 32-bit samples for fractional numbers, and returns noise.
func (a *AudioStream) decoder() []string {
	if a.Codec != "pcm_f24le" {
		return nil
	}
	return []string{fmt.Sprintf("-c:%d", a.Index), "pcm_s32le"}
}

// maxPackets exceeds the packets of twelve hours of film with several audio tracks. A small file can contain an index
// of a billion packets.
const maxPackets = 6_000_000

// AnalysisLimits bound what reading one file for a request may cost.
var AnalysisLimits = MeasureOptions{MaxPackets: maxPackets, MaxMemoryBytes: 512 << 20, Timeout: 60 * time.Second}

// Probe reads a file's headers and packets with ffprobe, confined, with the demuxer for its magic bytes. The error
// wraps ErrNotMedia if the service cannot open the file, and ErrEncrypted if the media is encrypted. Any other error
// means that the file could not be read or that ffprobe did not work.
func (r *Runner) Probe(ctx context.Context, path string) (Probe, error) {
	return r.ProbeWithin(ctx, path, MeasureOptions{MaxPackets: maxPackets, MaxMemoryBytes: min(1<<30, r.cfg.MaxMemoryBytes)})
}

// ProbeWithin is Probe with limits chosen by the caller.
func (r *Runner) ProbeWithin(ctx context.Context, path string, opts MeasureOptions) (Probe, error) {
	class, err := container.SniffFile(path)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return Probe{}, fmt.Errorf("probe: %w", err)
	}
	scan := newPacketScan(opts)
	scan.wantFrames = true
	out, err := r.scan(ctx, "probe", path, class.Kind, InputArgs(class.Kind, path), scan)
	if err != nil {
		return Probe{}, err
	}
	var index container.Index
	if class.Kind == container.MP4 {
		if index, err = container.ReadIndex(path); err != nil {
			return Probe{}, fmt.Errorf("probe: %w", err)
		}
	}
	if index.Encrypted || scan.encrypted() {
		return Probe{}, fmt.Errorf("probe: %w", ErrEncrypted)
	}
	p := scan.probe(class.Kind)
	for _, wrong := range []struct {
		pictures, sound bool
		reason          string
	}{
		{index.MixedVideo, false, "changes how its pictures are encoded on the way; send its pieces as clips of their own"},
		{false, index.MixedSound, "changes how its sound is encoded on the way; send its pieces as clips of their own"},
		{index.RestartedVideo, index.RestartedSound, restarts},
		{index.EditedVideo, index.EditedSound,
			"has an edit list with a pause or with another speed, which this server cannot follow; export it again without"},
	} {
		if wrong.sound && p.Audio != nil {
			return Probe{}, fmt.Errorf("probe: %w", &SoundError{wrong.reason})
		}
		if wrong.pictures && p.Video != nil {
			p.hidePictures(wrong.reason)
		}
	}
	if gap := p.AudioPackets.leading; index.Continued && gap > minLeading && gap < maxLeading {
		p.AudioPackets.Clockless = true
		p.AudioPackets.End -= gap
	}
	if index.DolbyAV1 && p.Video == nil && p.Unshown == "" {
		p.hidePictures("has Dolby Vision pictures in AV1, which this server cannot show; export it as HDR10, HLG or SDR")
	}
	if large := tooLargePicture(out.stderr); p.Video == nil && large != nil {
		return Probe{}, fmt.Errorf("probe: %w", large)
	}
	if p.Video == nil && p.Audio == nil && p.Unshown == "" {
		return Probe{}, fmt.Errorf("probe: %w: no video or audio stream that can be decoded", ErrNotMedia)
	}
	if v := p.VideoPackets; int64(len(v.Starts)) < min(v.Packets, maxFrames) { // dropped to keep those of other streams
		return Probe{}, fmt.Errorf("probe: %w", ErrTooManyPackets)
	}
	err = r.recount(ctx, path, class.Kind, opts, &p.AudioPackets)
	if steady := p.AudioPackets.steady; err == nil && steady != nil && !p.AudioPackets.Clockless {
		steady.Clockless = true
		switch err = r.recount(ctx, path, class.Kind, opts, steady); {
		case err == nil:
			p.AudioPackets = *steady
		case errors.Is(err, ErrNotMedia): // its clock is all there is
			err = nil
		}
	}
	p.Clockless = p.AudioPackets.Clockless
	return p, err
}

// restarts is the reason why a file with a second recording after the first cannot be used.
const restarts = "holds several recordings one after another; send them as clips of their own"

// The index of an mp4 whose samples continue in fragments has no edit list. ffmpeg's muxer makes its first packet of
// sound last until the second, to hide that the sound begins late. Players play on after such a short gap, without
// silence. A gap between minLeading and maxLeading counts as none.
const (
	minLeading = 20 * time.Millisecond
	maxLeading = 200 * time.Millisecond
)

// encrypted reports whether ffprobe says that a track is encrypted, which it does for matroska. For mp4 it only names
// the codec underneath the encryption.
func (s *packetScan) encrypted() bool {
	for _, st := range s.streams {
		if st.header["enc_key_id"] != "" {
			return true
		}
	}
	return false
}

// hidePictures records why the pictures cannot be shown.
func (p *Probe) hidePictures(reason string) {
	p.Video, p.VideoPackets, p.Unshown = nil, Measured{}, reason
}

// notMediaIfExit blames the file if ffprobe failed on it, crashed or reached a limit of its confinement. The file is
// not to blame if ffprobe was cancelled or killed from outside, for example by the kernel because memory ran out.
func notMediaIfExit(err error) error {
	if exit, ok := errors.AsType[*ExitError](err); ok && !exit.stoppedFromOutside() {
		if large := tooLargePicture(exit.Stderr); large != nil {
			return fmt.Errorf("%w: %w", large, err)
		}
		return fmt.Errorf("%w: %w", ErrNotMedia, err)
	}
	return err
}

// probe chooses which streams to use.
func (s *packetScan) probe(kind container.Kind) Probe {
	p := Probe{Kind: kind, Streams: s.headers, Duration: parseSeconds(s.format["duration"]), Start: parseSeconds(s.format["start_time"])}
	enhanced, restarted := false, false
	for _, m := range s.finish() {
		switch h := s.streams[m.Index].header; {
		case h.lacksBaseLayer():
			enhanced = true
		case h.isVideo():
			if v := readVideo(m.Index, h); p.Video == nil || betterVideo(v, m, p.Video, p.VideoPackets) {
				p.Video, p.VideoPackets = v, m
				restarted = kind == container.Matroska && s.streams[m.Index].restarted
			}
		case m.Type == "audio":
			a := readAudio(m.Index, h)
			if m.Codec == "" || a.Channels == 0 || a.SampleRate == 0 {
				p.Unheard = p.Unheard || m.Packets > 0
			} else if p.Audio == nil || a.Default && !p.Audio.Default {
				p.Audio, p.AudioPackets = a, m
			}
		}
	}
	p.Unheard = p.Unheard && p.Audio == nil
	switch {
	case p.Video == nil && enhanced:
		p.hidePictures("has Dolby Vision pictures without a base layer, which cannot be shown; export it as HDR10, HLG or SDR")
	case restarted:
		p.hidePictures(restarts)
	}
	return p
}

// lacksBaseLayer reports whether the pictures are Dolby Vision of a profile that only its own decoders can show (5, and
// 10.0 in AV1). ffmpeg would decode them in false colours. Profiles up to 4, and 7, always have a base layer.
func (h header) lacksBaseLayer() bool {
	profile := h.number("dv_profile")
	return profile == 5 || profile >= 8 && h["dv_bl_signal_compatibility_id"] == "0"
}

// isVideo reports whether the stream is video to play: not cover art, a known codec, a frame size, and not declared
// empty.
func (h header) isVideo() bool {
	return h["codec_type"] == "video" && h.number("attached_pic") == 0 && h.number("timed_thumbnails") == 0 &&
		h.text("codec_name") != "" && h.number("width") > 0 && h.number("height") > 0 && h["nb_frames"] != "0"
}

// betterVideo prefers the stream with more than twice the pictures, then the larger frame, then the default track, then
// the earlier one. So a declared but empty track loses, as do the few large stills beside the film in a motion photo,
// and chapter pictures.
func betterVideo(a *VideoStream, aPackets Measured, b *VideoStream, bPackets Measured) bool {
	if na, nb := aPackets.Packets, bPackets.Packets; na > 2*nb || nb > 2*na {
		return na > nb
	}
	if pa, pb := int64(a.Width)*int64(a.Height), int64(b.Width)*int64(b.Height); pa != pb {
		return pa > pb
	}
	return a.Default && !b.Default
}

func readVideo(index int, h header) *VideoStream {
	v := &VideoStream{
		Index: index, Codec: h.text("codec_name"), Width: int(h.number("width")), Height: int(h.number("height")),
		// The matrix has several lines, which ffprobe prints as one.
		Orientation: parseDisplayMatrix(strings.ReplaceAll(h["displaymatrix"], `\n`, "\n")),
		SAR:         parseRational(h["sample_aspect_ratio"]), AvgFrameRate: parseRational(h["avg_frame_rate"]),
		FrameRate: parseRational(h["r_frame_rate"]),
		Frames:    h.number("nb_frames"), PixelFormat: h.text("pix_fmt"), BitDepth: bitDepth(h),
		ColorRange: h.text("color_range"), ColorSpace: h.text("color_space"),
		ColorTransfer: h.text("color_transfer"), ColorPrimaries: h.text("color_primaries"),
		FieldOrder: h.text("field_order"), TimeBase: parseRational(h["time_base"]),
		Start: parseSeconds(h["start_time"]), Duration: parseSeconds(h["duration"]), Default: h.number("default") != 0,
	}
	if !v.SAR.Known() {
		v.SAR = Rational{1, 1}
	}
	if h["alpha_mode"] == "1" && (v.Codec == "vp8" || v.Codec == "vp9") {
		v.PixelFormat = "yuva420p"
	}
	v.DisplayWidth, v.DisplayHeight = displaySize(v.Width, v.Height, v.SAR)
	if v.Orientation.SwapsSides() {
		v.DisplayWidth, v.DisplayHeight = v.DisplayHeight, v.DisplayWidth
	}
	return v
}

func readAudio(index int, h header) *AudioStream {
	return &AudioStream{
		Index: index, Codec: h.text("codec_name"), SampleRate: int(h.number("sample_rate")), Channels: int(h.number("channels")),
		Layout: h.text("channel_layout"), BitDepth: int(h.number("bits_per_raw_sample")), Frames: h.number("nb_frames"),
		Start: parseSeconds(h["start_time"]), Duration: parseSeconds(h["duration"]), Default: h.number("default") != 0,
	}
}

// displaySize makes pixels square by stretching their shorter side, so that no detail is lost. It treats a pixel shape
// beyond 1:16 as damage.
func displaySize(w, h int, sar Rational) (int, int) {
	ratio := sar.Float()
	switch {
	case ratio > 16 || ratio < 1.0/16:
		return w, h
	case ratio > 1:
		return int(float64(w)*ratio + 0.5), h
	default:
		return w, int(float64(h)/ratio + 0.5)
	}
}

// bitDepth uses the codec's value, or else the name of the pixel format (yuv420p10le).
func bitDepth(h header) int {
	if n := h.number("bits_per_raw_sample"); n >= 8 && n <= 16 {
		return int(n)
	}
	format := h["pix_fmt"]
	for _, depth := range []int{16, 14, 12, 10, 9} {
		n := strconv.Itoa(depth)
		if strings.Contains(format, "p"+n) || strings.HasPrefix(format, "p0"+n) || strings.HasPrefix(format, "gray"+n) {
			return depth
		}
	}
	return 8
}
