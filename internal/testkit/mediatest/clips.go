// Makes clips with ffmpeg for tests: colours, tones, flashes with beeps, other containers.

package mediatest

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cutroom/internal/sandbox/measure"
)

// Spec describes a clip. The zero value of a field means its default.
type Spec struct {
	Width, Height int           // 0: no video
	FPS           string        // "30" (default), "30000/1001", ...
	Duration      time.Duration // default 1 s
	Color         string        // one colour for every frame ("red", "0x102030"); default a moving test picture with a counter
	VideoCodec    string        // ffmpeg encoder; default libx264
	PixelFormat   string        // default yuv420p
	GOP           int           // frames between keyframes; default one second's worth

	Tone       float64 // Hz of the sine; 0: no audio
	Amplitude  float64 // peak of the sine, 0..1; default 0.25
	Channels   int     // default 2; every channel holds the same tone
	SampleRate int     // default 48000
	AudioCodec string  // ffmpeg encoder; default by container

	Container string   // file ending without dot; default "mp4", or "wav" without video
	Output    []string // further ffmpeg arguments for the output
}

// Clip makes the clip in a temporary folder and returns its path.
func Clip(t testing.TB, s Spec) string { t.Helper(); return Clips(t, s)[0] }

// Clips makes several clips in one run of ffmpeg, because starting it costs more than a short clip.
func Clips(t testing.TB, specs ...Spec) (paths []string) {
	t.Helper()
	var in, out []string
	for i, s := range specs {
		s = s.withDefaults()
		paths = append(paths, filepath.Join(t.TempDir(), fmt.Sprintf("clip%d.%s", i, s.Container)))
		more, encode := s.args(strings.Count(strings.Join(in, " "), "-i "))
		in, out = append(in, more...), append(append(out, encode...), paths[i])
	}
	FFmpeg(t, append(in, out...)...)
	return paths
}

func (s Spec) withDefaults() Spec {
	s.Duration = cmp.Or(s.Duration, time.Second)
	s.FPS = cmp.Or(s.FPS, "30")
	s.PixelFormat = cmp.Or(s.PixelFormat, "yuv420p")
	s.VideoCodec = cmp.Or(s.VideoCodec, "libx264")
	s.Amplitude = cmp.Or(s.Amplitude, 0.25)
	s.Channels = cmp.Or(s.Channels, 2)
	s.SampleRate = cmp.Or(s.SampleRate, 48000)
	if s.Container == "" {
		s.Container = "wav"
		if s.Width > 0 {
			s.Container = "mp4"
		}
	}
	return s
}

// args returns the ffmpeg options of a clip's inputs and of its output. input is the number of its first input.
func (s Spec) args(input int) (in, out []string) {
	if s.Width > 0 {
		source := fmt.Sprintf("testsrc2=s=%dx%d:r=%s", s.Width, s.Height, s.FPS)
		if s.Color != "" {
			source = fmt.Sprintf("color=c=%s:s=%dx%d:r=%s", s.Color, s.Width, s.Height, s.FPS)
		}
		in = append(in, "-f", "lavfi", "-t", ffSeconds(s.Duration), "-i", source)
		out = append(out, "-map", fmt.Sprint(input), "-c:v", s.VideoCodec, "-pix_fmt", s.PixelFormat)
		input++
		if s.VideoCodec == "libx264" {
			out = append(out, "-preset", "ultrafast", "-crf", "18")
		}
		if s.GOP > 0 {
			out = append(out, "-g", fmt.Sprint(s.GOP))
		}
	}
	if s.Tone > 0 {
		in = append(in, "-f", "lavfi", "-t", ffSeconds(s.Duration), "-i", sine(s.Tone, s.Amplitude, s.SampleRate, s.Channels))
		out = append(out, "-map", fmt.Sprint(input))
		if s.AudioCodec != "" {
			out = append(out, "-c:a", s.AudioCodec)
		}
	}
	return in, append(out, s.Output...)
}

// sine returns a lavfi source of an exact sine. ffmpeg's sine filter uses 16-bit tables; aevalsrc computes in double
// precision.
func sine(hz, amplitude float64, rate, channels int) string {
	wave := fmt.Sprintf("%.6f*sin(2*PI*%.6f*t)", amplitude, hz)
	return fmt.Sprintf("aevalsrc=exprs='%s':s=%d:c=%dc", strings.Join(slices.Repeat([]string{wave}, channels), "|"), rate, channels)
}

// Tone makes a stereo 48 kHz WAV file of one sine with a peak of 0.25.
func Tone(t testing.TB, hz float64, d time.Duration) string {
	t.Helper()
	return Clip(t, Spec{Tone: hz, Duration: d})
}

// Tones makes a three-second stereo 48 kHz WAV file that mixes the sines, each with a peak of 0.2.
func Tones(t testing.TB, hz ...float64) string {
	t.Helper()
	var sum []string
	for _, f := range hz {
		sum = append(sum, fmt.Sprintf("0.2*sin(2*PI*%.6f*t)", f))
	}
	wave := strings.Join(sum, "+")
	path := filepath.Join(t.TempDir(), "tones.wav")
	FFmpeg(t, "-f", "lavfi", "-t", "3", "-i", fmt.Sprintf("aevalsrc=exprs='%s|%s':s=48000:c=stereo", wave, wave), path)
	return path
}

// FlashBeep makes a 160x90 mp4 for measuring sync: black, with white frames and a 1 kHz beep during the first 100 ms of
// every second. Its audio is FLAC, so no codec delay blurs the start of a beep.
func FlashBeep(t testing.TB, d time.Duration, fps string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "flashbeep.mp4")
	FFmpeg(t,
		// The half millisecond absorbs the rounding of frame times.
		"-f", "lavfi", "-t", ffSeconds(d), "-i", "color=c=black:s=160x90:r="+fps+",drawbox=c=white:t=fill:enable='lt(mod(t+0.0005,1),0.0995)'",
		"-f", "lavfi", "-t", ffSeconds(d), "-i", "aevalsrc=exprs='0.5*sin(2*PI*1000*t)*lt(mod(t,1),0.1)':s=48000:c=mono",
		"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-c:a", "flac", "-strict", "-2", path)
	return path
}

// Remux copies a file's streams into another container. output holds additional ffmpeg arguments: Remux(t, clip, "mp4",
// "-movflags", "frag_keyframe").
func Remux(t testing.TB, path, container string, output ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "remux."+container)
	args := append([]string{"-i", "file:" + path, "-map", "0", "-c", "copy"}, output...)
	FFmpeg(t, append(args, out)...)
	return out
}

// WithMatrix copies an mp4 and gives its first track the display matrix a b c d, see measure.Turn.
func WithMatrix(t testing.TB, path string, m [4]int32) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "turned.mp4")
	if err := measure.Turn(path, out, m); err != nil {
		t.Fatal(err)
	}
	return out
}
