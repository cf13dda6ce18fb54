package media

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"cutroom/internal/media/container"
)

// Probe is what a file's headers say, together with which streams are worth
// using. Durations are claims: see Measure for facts.
type Probe struct {
	Kind     container.Kind
	Duration time.Duration // claimed, 0 when the header has none
	Start    time.Duration // earliest timestamp of any stream

	Video *VideoStream // the largest real video stream, nil without one
	Audio *AudioStream // the default or first decodable audio stream, nil without one

	Streams int // of all types
}

// VideoStream is a video track as its header describes it.
type VideoStream struct {
	Index         int
	Codec         string // ffmpeg's name: "h264", "hevc", ...
	Width, Height int    // as coded: before pixel shape and rotation

	// Orientation turns the coded frame into the displayed one.
	Orientation Orientation
	SAR         Rational // pixel width/height; 1/1 when the file says nothing
	// DisplayWidth and DisplayHeight are what a player shows: pixel shape and
	// rotation applied. They may be odd.
	DisplayWidth, DisplayHeight int

	AvgFrameRate Rational // frames by duration
	FrameRate    Rational // ffmpeg's r_frame_rate: the lowest rate that represents all timestamps
	Frames       int64    // claimed by the container, 0 when it does not say

	PixelFormat    string
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

// HDR reports whether the transfer function is PQ or HLG, so that the frames
// need tone-mapping for an SDR output.
func (v *VideoStream) HDR() bool {
	return v.ColorTransfer == "smpte2084" || v.ColorTransfer == "arib-std-b67"
}

// Interlaced reports whether the header says that frames hold two fields.
func (v *VideoStream) Interlaced() bool {
	switch v.FieldOrder {
	case "tt", "bb", "tb", "bt":
		return true
	}
	return false
}

// AudioStream is an audio track as its header describes it.
type AudioStream struct {
	Index           int
	Codec           string
	SampleRate      int // Hz
	Channels        int
	Frames          int64         // packets claimed by the container, 0 when it does not say
	Start, Duration time.Duration // claimed; Duration is 0 when unknown
	Default         bool
}

// ffprobeOutput is the part of ffprobe's JSON that is read.
type ffprobeOutput struct {
	Streams []ffprobeStream `json:"streams"`
	Format  struct {
		Duration  string `json:"duration"`
		StartTime string `json:"start_time"`
	} `json:"format"`
}

type ffprobeStream struct {
	Index          int            `json:"index"`
	CodecName      string         `json:"codec_name"`
	CodecType      string         `json:"codec_type"`
	Width          int            `json:"width"`
	Height         int            `json:"height"`
	SAR            string         `json:"sample_aspect_ratio"`
	PixFmt         string         `json:"pix_fmt"`
	BitsPerRaw     string         `json:"bits_per_raw_sample"`
	ColorRange     string         `json:"color_range"`
	ColorSpace     string         `json:"color_space"`
	ColorTransfer  string         `json:"color_transfer"`
	ColorPrimaries string         `json:"color_primaries"`
	FieldOrder     string         `json:"field_order"`
	RFrameRate     string         `json:"r_frame_rate"`
	AvgFrameRate   string         `json:"avg_frame_rate"`
	TimeBase       string         `json:"time_base"`
	StartTime      string         `json:"start_time"`
	Duration       string         `json:"duration"`
	NbFrames       string         `json:"nb_frames"`
	SampleRate     string         `json:"sample_rate"`
	Channels       int            `json:"channels"`
	Disposition    map[string]int `json:"disposition"`
	SideData       []struct {
		Type   string `json:"side_data_type"`
		Matrix string `json:"displaymatrix"`
	} `json:"side_data_list"`
	Tags struct {
		KeyID string `json:"enc_key_id"` // of an encrypted track in matroska
	} `json:"tags"`
}

// maxProbeBytes bounds ffprobe's answer: a header may declare thousands of
// streams.
const maxProbeBytes = 4 << 20

// probeEntries is all that is asked for. Tags are not, but for one: another may be
// larger than everything else.
const probeEntries = "format=duration,start_time:stream_disposition:stream_side_data_list:stream_tags=enc_key_id:" +
	"stream=index,codec_name,codec_type,width,height,sample_aspect_ratio,pix_fmt,bits_per_raw_sample," +
	"color_range,color_space,color_transfer,color_primaries,field_order,r_frame_rate,avg_frame_rate,time_base," +
	"start_time,duration,nb_frames,sample_rate,channels"

// Probe reads a file's headers with ffprobe, confined, under the demuxer its
// magic bytes call for. The error wraps ErrNotMedia when the file is not media
// that the service opens, and ErrEncrypted when it is and nobody can see or hear
// it; it is another one when the file cannot be read or ffprobe could not do its
// work.
func (r *Runner) Probe(ctx context.Context, path string) (Probe, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return Probe{}, fmt.Errorf("probe: %w", err)
	}
	class, err := container.SniffFile(path)
	if err != nil {
		return Probe{}, fmt.Errorf("probe: %w", err)
	}
	kind := class.Kind
	if kind == container.Unknown {
		return Probe{}, fmt.Errorf("probe: %w: unknown magic bytes", ErrNotMedia)
	}
	answer := &limitedBuffer{limit: maxProbeBytes}
	args := append([]string{"-hide_banner", "-loglevel", "error"}, r.maxPixels()...)
	args = append(args, openArgs(kind, path)...)
	args = append(args, "-show_entries", probeEntries, "-print_format", "json", inputURL(path))
	out, err := r.run(ctx, command{
		name: "probe", binary: r.ffprobe, args: args, reads: []string{path},
		stdout: answer, timeout: probeTimeout,
	})
	if err != nil {
		return Probe{}, notMediaIfExit(err)
	}
	var raw ffprobeOutput
	if err := json.Unmarshal(answer.Bytes(), &raw); err != nil {
		return Probe{}, fmt.Errorf("probe: ffprobe's answer: %w", err)
	}
	if encrypted, err := isEncrypted(path, kind, raw); encrypted || err != nil {
		return Probe{}, fmt.Errorf("probe: %w", cmp.Or(err, ErrEncrypted))
	}
	if err := r.dropEmptyTracks(ctx, path, kind, &raw); err != nil {
		return Probe{}, err
	}
	p := readProbe(kind, raw)
	if large := tooLargePicture(out.stderr); p.Video == nil && large != nil {
		return Probe{}, fmt.Errorf("probe: %w", large)
	}
	if p.Video == nil && p.Audio == nil {
		return Probe{}, fmt.Errorf("probe: %w: no video or audio stream that can be decoded", ErrNotMedia)
	}
	return p, nil
}

// isEncrypted reports whether a track of the file is. ffprobe says so of matroska;
// of mp4 it names the codec below the encryption.
func isEncrypted(path string, kind container.Kind, raw ffprobeOutput) (bool, error) {
	for _, s := range raw.Streams {
		if s.Tags.KeyID != "" {
			return true, nil
		}
	}
	if kind != container.MP4 {
		return false, nil
	}
	index, err := container.ReadIndex(path)
	return index.Encrypted, err
}

// notMediaIfExit blames the file when ffprobe looked at it and gave up, crashed
// or was stopped by a limit of its confinement. Being cancelled, or killed by somebody
// else (the kernel out of memory), is not the file's fault.
func notMediaIfExit(err error) error {
	if exit, ok := errors.AsType[*ExitError](err); ok && exit.Signal != syscall.SIGKILL && exit.Signal != syscall.SIGTERM {
		if large := tooLargePicture(exit.Stderr); large != nil {
			return fmt.Errorf("%w: %w", large, err)
		}
		return fmt.Errorf("%w: %w", ErrNotMedia, err)
	}
	return err
}

// dropEmptyTracks removes video tracks without a single packet. The header
// usually says how many frames a track has; where several tracks compete and
// one does not say (fragmented mp4, matroska), packets are counted.
func (r *Runner) dropEmptyTracks(ctx context.Context, path string, kind container.Kind, raw *ffprobeOutput) error {
	candidates, silent := 0, false
	for _, s := range raw.Streams {
		if s.isVideo() {
			candidates++
			silent = silent || s.NbFrames == ""
		}
	}
	if candidates < 2 || !silent {
		return nil
	}
	measured, err := r.Measure(ctx, path, kind, MeasureOptions{})
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	filled := map[int]bool{}
	for _, m := range measured {
		filled[m.Index] = m.Packets > 0
	}
	for i := range raw.Streams {
		if s := &raw.Streams[i]; s.isVideo() && !filled[s.Index] {
			s.Width, s.Height = 0, 0
		}
	}
	return nil
}

// isVideo reports whether the stream is video to play: not cover
// art, a codec ffmpeg knows, a frame size and not declared empty.
func (s ffprobeStream) isVideo() bool {
	return s.CodecType == "video" && s.Disposition["attached_pic"] == 0 && s.Disposition["timed_thumbnails"] == 0 &&
		s.known() && s.Width > 0 && s.Height > 0 && s.NbFrames != "0"
}

func (s ffprobeStream) known() bool { return s.CodecName != "" && s.CodecName != "unknown" }

// readProbe chooses the streams and translates them.
func readProbe(kind container.Kind, raw ffprobeOutput) Probe {
	p := Probe{Kind: kind, Streams: len(raw.Streams)}
	p.Duration = parseSeconds(raw.Format.Duration)
	p.Start = parseSeconds(raw.Format.StartTime)
	for _, s := range raw.Streams {
		switch {
		case s.isVideo():
			if v := readVideo(s); p.Video == nil || betterVideo(v, p.Video) {
				p.Video = v
			}
		case s.CodecType == "audio":
			if a := readAudio(s); s.known() && a.Channels > 0 && a.SampleRate > 0 && (p.Audio == nil || a.Default && !p.Audio.Default) {
				p.Audio = a
			}
		}
	}
	return p
}

// betterVideo prefers the larger frame, then the default track, then the
// earlier one.
func betterVideo(a, b *VideoStream) bool {
	if pa, pb := int64(a.Width)*int64(a.Height), int64(b.Width)*int64(b.Height); pa != pb {
		return pa > pb
	}
	return a.Default && !b.Default
}

func readVideo(s ffprobeStream) *VideoStream {
	v := &VideoStream{
		Index: s.Index, Codec: s.CodecName, Width: s.Width, Height: s.Height,
		SAR: parseRational(s.SAR), AvgFrameRate: parseRational(s.AvgFrameRate), FrameRate: parseRational(s.RFrameRate),
		PixelFormat: s.PixFmt, BitDepth: bitDepth(s),
		ColorRange: known(s.ColorRange), ColorSpace: known(s.ColorSpace),
		ColorTransfer: known(s.ColorTransfer), ColorPrimaries: known(s.ColorPrimaries),
		FieldOrder: known(s.FieldOrder), TimeBase: parseRational(s.TimeBase), Default: s.Disposition["default"] != 0,
	}
	v.Frames, _ = strconv.ParseInt(s.NbFrames, 10, 64) // absent is 0: unknown
	v.Start = parseSeconds(s.StartTime)
	v.Duration = parseSeconds(s.Duration)
	for _, d := range s.SideData {
		if d.Matrix != "" {
			v.Orientation = parseDisplayMatrix(d.Matrix)
		}
	}
	if !v.SAR.Known() {
		v.SAR = Rational{1, 1}
	}
	v.DisplayWidth, v.DisplayHeight = displaySize(v.Width, v.Height, v.SAR)
	if v.Orientation.SwapsSides() {
		v.DisplayWidth, v.DisplayHeight = v.DisplayHeight, v.DisplayWidth
	}
	return v
}

// displaySize makes pixels square by stretching the shorter-pixelled side, so
// that no detail is thrown away. A pixel shape beyond 1:16 is taken for damage.
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

// bitDepth believes the codec, then the name of the pixel format (yuv420p10le).
func bitDepth(s ffprobeStream) int {
	if n, err := strconv.Atoi(s.BitsPerRaw); err == nil && n >= 8 && n <= 16 {
		return n
	}
	for _, depth := range []int{16, 14, 12, 10, 9} {
		n := strconv.Itoa(depth)
		if strings.Contains(s.PixFmt, "p"+n) || strings.HasPrefix(s.PixFmt, "p0"+n) || strings.HasPrefix(s.PixFmt, "gray"+n) {
			return depth
		}
	}
	return 8
}

func readAudio(s ffprobeStream) *AudioStream {
	a := &AudioStream{
		Index: s.Index, Codec: s.CodecName, Channels: s.Channels, Default: s.Disposition["default"] != 0,
	}
	a.SampleRate, _ = strconv.Atoi(s.SampleRate) // absent is 0: the stream is not used
	a.Frames, _ = strconv.ParseInt(s.NbFrames, 10, 64)
	a.Start = parseSeconds(s.StartTime)
	a.Duration = parseSeconds(s.Duration)
	return a
}

func known(s string) string {
	if s == "unknown" || s == "reserved" {
		return ""
	}
	return s
}

// limitedBuffer fails the writer, and with it the process, beyond limit bytes.
type limitedBuffer struct {
	bytes.Buffer
	limit int
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.limit {
		return 0, fmt.Errorf("%w: headers describe too much", ErrNotMedia)
	}
	return b.Buffer.Write(p)
}
