package test

import (
	"image"
	"image/color"
	"math"
	"testing"
	"time"

	"cutroom/internal/testkit/mediatest"
)

// frame is the duration of a frame at 25 fps.
const frame = 40 * time.Millisecond

var (
	red   = color.RGBA{R: 254, A: 255}
	blue  = color.RGBA{B: 254, A: 255}
	black = color.RGBA{A: 255}
	white = color.RGBA{255, 255, 255, 255}
)

// picturesAre fails the test unless the middle of the picture at each time has the colour, within the error of 4:2:0
// and two colour conversions. It returns the pictures.
func picturesAre(t testing.TB, path string, at []time.Duration, want ...color.RGBA) []*image.RGBA {
	t.Helper()
	pictures := mediatest.Frames(t, path, at...)
	for i, picture := range pictures {
		if got := mediatest.ColorAt(picture, 0.5, 0.5); mediatest.ColorDistance(got, want[i]) > 24 {
			t.Errorf("the picture at %v is %v, want %v", at[i], got, want[i])
		}
	}
	return pictures
}

// toneIs fails the test unless hz is the loudest tone of the shared clips in the window.
func toneIs(t testing.TB, path string, w mediatest.Window, hz float64) {
	t.Helper()
	if got := mediatest.DominantTone(t, path, w, 300, 440, 880, 1200, 1500); got != hz {
		t.Errorf("the sound from %v to %v is %v Hz, want %v", w.From, w.To, got, hz)
	}
}

// clipLevel is the level of the tone in a shared clip and in music, in dBFS.
const clipLevel = -12.04

// levelIs fails the test unless the tone has the level, within the error of AAC.
func levelIs(t testing.TB, path string, hz float64, w mediatest.Window, dB float64) {
	t.Helper()
	if got := mediatest.ToneLevel(t, path, hz, w); math.Abs(got-dB) > 0.4 {
		t.Errorf("%v Hz from %v to %v has %.2f dBFS, want %.2f", hz, w.From, w.To, got, dB)
	}
}

// absent fails the test unless the tone is at least 40 dB under a clip's.
func absent(t testing.TB, path string, hz float64, w mediatest.Window) {
	t.Helper()
	if got := mediatest.ToneLevel(t, path, hz, w); got > clipLevel-40 {
		t.Errorf("%v Hz from %v to %v has %.2f dBFS, want silence", hz, w.From, w.To, got)
	}
}

// isFilm fails the test unless the file has the promised format: H.264 High, yuv420p, BT.709, constant rate, AAC-LC 48
// kHz stereo, the index at the front, the given length, and tracks that end together.
func isFilm(t testing.TB, path string, width, height int, rate string, length time.Duration) {
	t.Helper()
	m := mediatest.Inspect(t, path)
	v, a := m.Video(t), m.Audio(t)
	if v.Codec != "h264" || v.Profile != "High" || v.PixelFormat != "yuv420p" {
		t.Errorf("video is %s %s %s, want h264 High yuv420p", v.Codec, v.Profile, v.PixelFormat)
	}
	if v.ColorSpace != "bt709" || v.ColorTransfer != "bt709" || v.ColorPrimaries != "bt709" {
		t.Errorf("colours are %s/%s/%s, want bt709", v.ColorSpace, v.ColorTransfer, v.ColorPrimaries)
	}
	if v.Width != width || v.Height != height {
		t.Errorf("picture is %dx%d, want %dx%d", v.Width, v.Height, width, height)
	}
	if v.FrameRate != rate || v.AvgFrameRate != rate {
		t.Errorf("frame rate is %s, on average %s, want %s", v.FrameRate, v.AvgFrameRate, rate)
	}
	isSound(t, a, length)
	if d := v.Duration - length; d.Abs() > frame {
		t.Errorf("video is %v long, want %v within one frame", v.Duration, length)
	}
	if d := v.Duration - a.Duration; d.Abs() > frame {
		t.Errorf("video ends at %v, audio at %v", v.Duration, a.Duration)
	}
	if !mediatest.IndexFirst(t, path) {
		t.Error("the index is not at the front")
	}
}

func isSound(t testing.TB, a mediatest.Stream, length time.Duration) {
	t.Helper()
	if a.Codec != "aac" || a.Profile != "LC" || a.SampleRate != 48000 || a.Channels != 2 {
		t.Errorf("sound is %s %s %d Hz %d channels, want aac LC 48000 Hz stereo", a.Codec, a.Profile, a.SampleRate, a.Channels)
	}
	if d := a.Duration - length; d.Abs() > frame {
		t.Errorf("sound is %v long, want %v", a.Duration, length)
	}
}
