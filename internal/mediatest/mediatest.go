// Package mediatest makes small clips for tests and measures what came out:
// durations, frames, pixels, loudness, tones and the joint of picture and sound.
// It judges media by decoding it.
//
// It runs ffmpeg and ffprobe directly, unconfined and without knowing how
// the service runs them, so that a mistake there cannot hide on both sides. All
// functions end the test when a tool fails. ffmpeg and ffprobe must be in PATH.
package mediatest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"cutroom/internal/sandbox/process"
)

// FFmpeg runs ffmpeg with args, after -nostdin -hide_banner -loglevel error -y,
// and returns what it wrote to stdout.
func FFmpeg(t testing.TB, args ...string) []byte {
	t.Helper()
	return run(t, "ffmpeg", append([]string{"-nostdin", "-hide_banner", "-loglevel", "error", "-y"}, args...)...)
}

func run(t testing.TB, program string, args ...string) []byte {
	t.Helper()
	out, err := process.Output(t.Context(), program, args...)
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
	return out
}

// answers is what files were found to hold. Tests ask many questions of one film,
// and each start of ffmpeg costs as much as decoding a short one.
var answers sync.Map

// question is what is asked of a file as it is now.
type question struct {
	what, path     string
	size, modified int64
}

// once reads a file at the first time that something is asked of it, and anew when
// it has changed. The answer is kept as long as the test that asked first.
func once[T any](t testing.TB, what, path string, read func() T) T {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	q := question{what, path, info.Size(), info.ModTime().UnixNano()}
	if known, ok := answers.Load(q); ok {
		return known.(T)
	}
	answer := read()
	answers.Store(q, answer)
	t.Cleanup(func() { answers.Delete(q) })
	return answer
}

// Media is what ffprobe says of a file.
type Media struct {
	Duration time.Duration
	Format   string
	Streams  []Stream
}

// Stream is one track.
type Stream struct {
	Index           int
	Type, Codec     string // "video"/"audio"/...; ffmpeg's codec name
	Profile         string
	Width, Height   int
	PixelFormat     string
	SAR             string
	FrameRate       string // r_frame_rate, "30000/1001"
	AvgFrameRate    string
	Frames          int
	ColorRange      string
	ColorSpace      string
	ColorTransfer   string
	ColorPrimaries  string
	SampleRate      int
	Channels        int
	BitRate         int
	Start, Duration time.Duration
	Rotated         bool // a display matrix is present
}

// Video returns the first video stream; the test ends when there is none.
func (m Media) Video(t testing.TB) Stream { t.Helper(); return m.first(t, "video") }

// Audio returns the first audio stream; the test ends when there is none.
func (m Media) Audio(t testing.TB) Stream { t.Helper(); return m.first(t, "audio") }

// Has reports whether there is a stream of the type ("video", "audio").
func (m Media) Has(kind string) bool {
	for _, s := range m.Streams {
		if s.Type == kind {
			return true
		}
	}
	return false
}

func (m Media) first(t testing.TB, kind string) Stream {
	t.Helper()
	for _, s := range m.Streams {
		if s.Type == kind {
			return s
		}
	}
	t.Fatalf("no %s stream in %+v", kind, m)
	return Stream{}
}

// Inspect reads a file's headers.
func Inspect(t testing.TB, path string) Media {
	t.Helper()
	return once(t, "headers", path, func() Media { return inspect(t, path) })
}

func inspect(t testing.TB, path string) Media {
	t.Helper()
	var raw struct {
		Format struct {
			Duration   string
			FormatName string `json:"format_name"`
		}
		Streams []struct {
			Index          int
			CodecType      string `json:"codec_type"`
			CodecName      string `json:"codec_name"`
			Profile        string
			Width, Height  int
			PixFmt         string `json:"pix_fmt"`
			SAR            string `json:"sample_aspect_ratio"`
			RFrameRate     string `json:"r_frame_rate"`
			AvgFrameRate   string `json:"avg_frame_rate"`
			NbFrames       string `json:"nb_frames"`
			ColorRange     string `json:"color_range"`
			ColorSpace     string `json:"color_space"`
			ColorTransfer  string `json:"color_transfer"`
			ColorPrimaries string `json:"color_primaries"`
			SampleRate     string `json:"sample_rate"`
			Channels       int
			BitRate        string            `json:"bit_rate"`
			StartTime      string            `json:"start_time"`
			Duration       string            `json:"duration"`
			SideDataList   []json.RawMessage `json:"side_data_list"`
		}
	}
	out := run(t, "ffprobe", "-loglevel", "error", "-show_format", "-show_streams", "-print_format", "json", "file:"+path)
	if err := json.Unmarshal(out, &raw); err != nil {
		t.Fatalf("ffprobe %s: %v", path, err)
	}
	m := Media{Duration: process.Seconds(raw.Format.Duration), Format: raw.Format.FormatName}
	for _, s := range raw.Streams {
		st := Stream{
			Index: s.Index, Type: s.CodecType, Codec: s.CodecName, Profile: s.Profile,
			Width: s.Width, Height: s.Height, PixelFormat: s.PixFmt, SAR: s.SAR,
			FrameRate: s.RFrameRate, AvgFrameRate: s.AvgFrameRate,
			ColorRange: s.ColorRange, ColorSpace: s.ColorSpace, ColorTransfer: s.ColorTransfer, ColorPrimaries: s.ColorPrimaries,
			Channels: s.Channels, Start: process.Seconds(s.StartTime), Duration: process.Seconds(s.Duration),
			Frames: process.Number(s.NbFrames), SampleRate: process.Number(s.SampleRate), BitRate: process.Number(s.BitRate),
		}
		for _, d := range s.SideDataList {
			st.Rotated = st.Rotated || bytes.Contains(d, []byte("displaymatrix"))
		}
		m.Streams = append(m.Streams, st)
	}
	return m
}

// IndexFirst reports whether the mp4's index (moov) comes before its media
// (mdat), so that playback can start before the end of the download.
func IndexFirst(t testing.TB, path string) bool {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// Nothing before the first of the two holds the name of the other.
	index, data := bytes.Index(b, []byte("moov")), bytes.Index(b, []byte("mdat"))
	if index < 0 || data < 0 {
		t.Fatalf("%s lacks moov (%d) or mdat (%d)", path, index, data)
	}
	return index < data
}

// DurationWithin fails the test unless the file's length, by its header, is
// want give or take tolerance.
func DurationWithin(t testing.TB, path string, want, tolerance time.Duration) {
	t.Helper()
	if got := Inspect(t, path).Duration; (got - want).Abs() > tolerance {
		t.Errorf("%s lasts %v, want %v within %v", path, got, want, tolerance)
	}
}

func ffSeconds(d time.Duration) string { return fmt.Sprintf("%.6f", d.Seconds()) }
