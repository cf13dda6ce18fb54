package test

import (
	"math"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/mediatest"
)

// countingClip is a clip of a second whose frames have the grey levels 60, 62, 64, ...
func countingClip(t *testing.T, rate int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "counting.mp4")
	mediatest.FFmpeg(t, "-f", "lavfi", "-i", "color=black:s=64x36:d=1:r="+strconv.Itoa(rate), "-vf",
		"format=yuv420p,geq=lum='60+2*N':cb=128:cr=128,setparams=range=tv:colorspace=bt709:color_primaries=bt709:color_trc=bt709",
		"-c:v", "libx264", "-qp", "4", path)
	return path
}

// The canvas sets the film's size, larger than the first segment, and its frame rate. Every frame shows the right frame
// of its source.
func TestRenderCanvasSizeAndRate(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	u := apitest.Shared(t).SignIn(t)
	slow, fast := countingClip(t, 25), countingClip(t, 60)
	for _, rate := range []int{24, 25, 30, 50, 60} {
		job := u.Render(t, M{
			"quality": "high",
			"canvas":  M{"aspect": "9:16", "shortSide": 240, "frameRate": rate},
			"segments": []M{
				apitest.With(apitest.Segment("video_0", 0, time.Second), M{"trimEndMs": 1000}),
				apitest.With(apitest.Segment("video_1", 1, time.Second), M{"trimEndMs": 1000, "fit": "cover"}),
			},
		}, apitest.File("video_0", slow), apitest.File("video_1", fast))
		u.WaitRendered(t, job)
		film := u.Download(t, job)
		isFilm(t, film, 240, 426, strconv.Itoa(rate)+"/1", 2*time.Second)
		step := time.Second / time.Duration(rate)
		pictures := append(mediatest.Frames(t, film, mediatest.Every(step/2, step, rate)...),
			mediatest.Frames(t, film, mediatest.Every(time.Second+step/2, step, rate)...)...)
		for i, p := range pictures {
			source, n := 25, i
			if i >= rate {
				source, n = 60, i-rate
			}
			// A frame may begin up to 0.4142 of the shorter of the two steps after the film's.
			want := min(source-1, int((float64(n)/float64(rate)+0.4142/float64(max(rate, source)))*float64(source)))
			level := 16 + float64(mediatest.ColorAt(p, 0.5, 0.5).G)*219/255
			if got := (level - 60) / 2; math.Abs(got-float64(want)) > 0.5 {
				t.Errorf("at %d a second, frame %d shows frame %.1f of the clip at %d, want %d", rate, i, got, source, want)
			}
		}
	}
}
