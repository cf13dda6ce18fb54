package test

import (
	"fmt"
	"image"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/mediatest"
)

// Clips from different phones become one film: different sizes and rates, a rotated picture, and a clip without sound.
// Each segment shows and plays its own clip at the right time.
func TestRenderOfRealClips(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	folder := os.Getenv("CUTROOM_MEDIA_DIR")
	if folder == "" {
		t.Skip("CUTROOM_MEDIA_DIR is not set")
	}
	const length = 1800 * time.Millisecond // of each segment: a whole number of frames
	clips := []struct {
		name          string
		width, height float64 // as displayed
		silent        bool
	}{
		{"clip_480p30.mp4", 720, 480, false},
		{"clip_portrait_rot90.mp4", 480, 854, false},
		{"clip_720p2997.mp4", 1280, 720, false},
		{"clip_noaudio_360p25.mp4", 640, 360, true},
		{"flashbeep_360p30.mp4", 640, 360, false},
	}
	var segments []M
	var parts []apitest.Part
	const trim = 500 * time.Millisecond
	for i, c := range clips {
		part := fmt.Sprintf("video_%d", i)
		path := filepath.Join(folder, c.name)
		whole := mediatest.Inspect(t, path).Video(t).Duration
		segments = append(segments, apitest.With(apitest.Segment(part, i, whole),
			M{"trimStartMs": trim.Milliseconds(), "trimEndMs": (trim + length).Milliseconds()}))
		parts = append(parts, apitest.File(part, path))
	}
	film := apitest.Shared(t).SignIn(t).RenderFilm(t, M{"segments": segments}, parts...)
	isFilm(t, film, 720, 480, "30/1", time.Duration(len(clips))*length)
	mediatest.ConstantRate(t, film, 30, len(clips)*54, time.Millisecond)
	for i, c := range clips {
		path, from := filepath.Join(folder, c.name), time.Duration(i)*length
		// Shortly after a frame of the film begins, when every clip still shows the picture of that frame.
		moments := []time.Duration{410 * time.Millisecond, 910 * time.Millisecond, 1410 * time.Millisecond}
		var inFilm, inClip []time.Duration
		for _, at := range moments {
			inFilm, inClip = append(inFilm, from+at), append(inClip, trim+at)
		}
		shown, want := mediatest.Frames(t, film, inFilm...), mediatest.Frames(t, path, inClip...)
		for n := range moments {
			if d := unlike(shown[n], want[n], c.width, c.height); d > 2 {
				t.Errorf("%s: the picture at %v differs by %.1f levels", c.name, inFilm[n], d)
			}
		}
		window := mediatest.Window{From: from + 200*time.Millisecond, To: from + 1600*time.Millisecond}
		heard := mediatest.RMS(t, film, window)
		if c.silent {
			if heard > -70 {
				t.Errorf("%s: %.1f dBFS, want silence", c.name, heard)
			}
			continue
		}
		original := mediatest.RMS(t, path, mediatest.Window{From: trim + 200*time.Millisecond, To: trim + 1600*time.Millisecond})
		if math.Abs(heard-original) > 1 {
			t.Errorf("%s: %.1f dBFS, the clip has %.1f", c.name, heard, original)
		}
	}
}

// unlike returns the mean difference of two pictures' lightness in levels, by blocks. The first shows the second, of
// the displayed size, in the middle of its canvas.
func unlike(shown, clip *image.RGBA, width, height float64) float64 {
	canvas := shown.Bounds()
	scale := min(float64(canvas.Dx())/width, float64(canvas.Dy())/height)
	w, h := int(width*scale), int(height*scale)
	area := image.Rect(0, 0, w, h).Add(image.Pt((canvas.Dx()-w)/2, (canvas.Dy()-h)/2))
	const across = 10
	sum := 0.0
	for y := range across {
		for x := range across {
			sum += math.Abs(lightness(shown, block(area, x, y, across)) - lightness(clip, block(clip.Bounds(), x, y, across)))
		}
	}
	return sum / across / across
}

// block returns one of n by n parts of an area.
func block(area image.Rectangle, x, y, n int) image.Rectangle {
	at := func(x, y int) image.Point {
		return area.Min.Add(image.Pt(area.Dx()*x/n, area.Dy()*y/n))
	}
	return image.Rectangle{Min: at(x, y), Max: at(x+1, y+1)}
}

func lightness(img *image.RGBA, area image.Rectangle) float64 {
	sum := 0
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			sum += int(img.RGBAAt(x, y).G)
		}
	}
	return float64(sum) / float64(area.Dx()*area.Dy())
}
