// Measures pictures: frame times, colours, luma, and the sync of flashes and beeps.

package mediatest

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"cutroom/internal/sandbox/measure"
)

// FrameTimes returns the presentation times of all frames of the first video stream.
func FrameTimes(t testing.TB, path string) []time.Duration {
	t.Helper()
	return frames(t, path).times
}

// shown holds the frames of a film.
type shown struct {
	times []time.Duration
	luma  []float64 // mean brightness, 0..255
}

// frames decodes the first video stream.
func frames(t testing.TB, path string) shown {
	t.Helper()
	return once(t, "frames", path, func() (all shown) {
		const luma = "lavfi.signalstats.YAVG"
		list := filepath.Join(t.TempDir(), "frames")
		FFmpeg(t, "-copyts", "-i", "file:"+path, "-map", "0:v:0", "-fps_mode", "passthrough", "-f", "null", "-vf",
			"scale=1:1:flags=area,format=gray,settb=1/1000000,signalstats,metadata=print:key="+luma+":file="+list, "-")
		text, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var n, pts int64
			if level, ok := strings.CutPrefix(strings.TrimSpace(line), luma+"="); ok {
				y, _ := strconv.ParseFloat(level, 64) // 0 is dark
				all.luma = append(all.luma, y)
			} else if _, err := fmt.Sscanf(line, "frame:%d pts:%d", &n, &pts); err != nil {
				t.Fatalf("%q: %v", line, err)
			} else {
				all.times = append(all.times, time.Duration(pts)*time.Microsecond)
			}
		}
		return all
	})
}

// Lumas returns the luma of all pictures of a film, as it is stored.
func Lumas(t testing.TB, path string, width, height int) [][]byte {
	t.Helper()
	pictures, err := measure.Pictures(t.Context(), path, "null", "yuv420p", width*height*3/2)
	if err != nil {
		t.Fatal(err)
	}
	for i := range pictures {
		pictures[i] = pictures[i][:width*height]
	}
	return pictures
}

// ConstantRate fails the test unless the video has the given number of frames, the first one at zero and each one
// within tolerance of its time at fps (such as 30000.0/1001). It computes each time from zero, so small errors cannot
// add up.
func ConstantRate(t testing.TB, path string, fps float64, frames int, tolerance time.Duration) {
	t.Helper()
	times := FrameTimes(t, path)
	if len(times) != frames {
		t.Errorf("%s has %d frames, want %d", path, len(times), frames)
	}
	for i, at := range times {
		want := time.Duration(float64(i) / fps * float64(time.Second))
		if (at - want).Abs() > tolerance {
			t.Errorf("%s: frame %d is shown at %v, want %v within %v", path, i, at, want, tolerance)
			return
		}
	}
}

// Frame decodes the picture that a player shows at a time, with rotation applied.
func Frame(t testing.TB, path string, at time.Duration) *image.RGBA {
	t.Helper()
	return Frames(t, path, at)[0]
}

// Frames is Frame for several times in one pass. The times must ascend and show different pictures.
func Frames(t testing.TB, path string, at ...time.Duration) (pictures []*image.RGBA) {
	t.Helper()
	starts := FrameTimes(t, path)
	var chosen []string
	for _, a := range at {
		shown, _ := slices.BinarySearch(starts, a+1)
		chosen = append(chosen, fmt.Sprintf(`eq(n\,%d)`, max(0, shown-1)))
	}
	// Decode the film from its start: tests must not rely on seeking.
	raw := bytes.NewReader(FFmpeg(t, "-i", "file:"+path, "-map", "0:v:0", "-vf", "select="+strings.Join(chosen, "+"),
		"-fps_mode", "passthrough", "-frames:v", fmt.Sprint(len(at)), "-c:v", "pam", "-pix_fmt", "rgba", "-f", "image2pipe", "-"))
	for range at {
		const header = "P7\nWIDTH %d\nHEIGHT %d\nDEPTH 4\nMAXVAL 255\nTUPLTYPE RGB_ALPHA\nENDHDR\n"
		var width, height int
		if _, err := fmt.Fscanf(raw, header, &width, &height); err != nil {
			t.Fatalf("header of picture %d: %v", len(pictures), err)
		}
		img := image.NewRGBA(image.Rect(0, 0, width, height))
		if _, err := io.ReadFull(raw, img.Pix); err != nil {
			t.Fatalf("picture %d: %v", len(pictures), err)
		}
		pictures = append(pictures, img)
	}
	return pictures
}

// Every returns n times, a step apart.
func Every(first, step time.Duration, n int) (times []time.Duration) {
	for i := range n {
		times = append(times, first+time.Duration(i)*step)
	}
	return times
}

// ColorAt returns the mean colour of the 9x9 pixels around a point. x and y are fractions of the width and the height,
// so a point is valid in any resolution.
func ColorAt(img *image.RGBA, x, y float64) color.RGBA {
	b := img.Bounds()
	cx, cy := int(x*float64(b.Dx())), int(y*float64(b.Dy()))
	var r, g, bl, n int
	for py := max(0, cy-4); py <= min(b.Dy()-1, cy+4); py++ {
		for px := max(0, cx-4); px <= min(b.Dx()-1, cx+4); px++ {
			c := img.RGBAAt(px, py)
			r, g, bl, n = r+int(c.R), g+int(c.G), bl+int(c.B), n+1
		}
	}
	if n == 0 {
		return color.RGBA{}
	}
	return color.RGBA{uint8(r / n), uint8(g / n), uint8(bl / n), 255}
}

// ColorDistance returns the largest difference of the three channels, 0..255.
func ColorDistance(a, b color.RGBA) int {
	d := func(x, y uint8) int { return int(math.Abs(float64(x) - float64(y))) }
	return max(d(a.R, b.R), d(a.G, b.G), d(a.B, b.B))
}

// SyncPoint is one flash of a film made from FlashBeep clips, with its beep.
type SyncPoint struct {
	Flash time.Duration // presentation time of the first white frame
	Beep  time.Duration // first sample of the beep
}

// Offset returns how much later than the flash the beep is.
func (p SyncPoint) Offset() time.Duration { return p.Beep - p.Flash }

// SyncPoints finds all flashes and pairs each with the nearest beep. It ends the test if a flash has no beep within 300
// ms. Flashes are as exact as frame times, beeps to about half a millisecond.
func SyncPoints(t testing.TB, path string) []SyncPoint {
	t.Helper()
	var points []SyncPoint
	film := frames(t, path)
	beeps := beepStarts(Mono(t, path))
	for _, n := range measure.Flashes(film.luma) {
		flash := film.times[n]
		nearest := time.Hour
		for _, beep := range beeps {
			if (beep - flash).Abs() < (nearest - flash).Abs() {
				nearest = beep
			}
		}
		if (nearest - flash).Abs() > 300*time.Millisecond {
			t.Fatalf("%s: no beep near the flash at %v; beeps at %v", path, flash, beeps)
		}
		points = append(points, SyncPoint{flash, nearest})
	}
	if len(points) == 0 {
		t.Fatalf("%s: no flashes", path)
	}
	return points
}

// beepStarts returns the times at which a 1 kHz tone follows silence. The threshold is a tenth of the loudest sample: a
// 1 kHz sine crosses it within 20 microseconds, and an AAC encoder's pre-echo stays below it.
func beepStarts(samples []float64) []time.Duration {
	var peak float64
	for _, v := range samples {
		peak = max(peak, math.Abs(v))
	}
	if peak == 0 {
		return nil
	}
	var starts []time.Duration
	quiet := SampleRate // samples since the last loud one
	for i, v := range samples {
		if math.Abs(v) < peak/10 {
			quiet++
			continue
		}
		if quiet > SampleRate/50 { // 20 ms: longer than a period, shorter than a pause at speed 10
			starts = append(starts, time.Duration(float64(i)/SampleRate*float64(time.Second)))
		}
		quiet = 0
	}
	return starts
}
