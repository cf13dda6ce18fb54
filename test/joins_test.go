package test

import (
	"image/color"
	"testing"
	"time"

	"cutroom/internal/apitest"
	"cutroom/internal/mediatest"
)

// The API reports the length of a vertical film with a dissolve and a fade to white. The film has
// that length.
func TestRenderJoinsAndCanvas(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	u := apitest.Shared(t).SignIn(t)
	job := u.Render(t, M{
		"canvas": M{"aspect": "9:16", "fit": "blur", "maxSide": 300},
		"segments": []M{
			apitest.With(apitest.Segment("video_0", 0, clipLength), M{"trimEndMs": 1000, "transition": M{"type": "fadeBlack"}}), // ignored on the first
			apitest.With(apitest.Segment("video_1", 1, clipLength), M{"trimEndMs": 1000, "transition": M{"type": "dissolve", "durationMs": 400}, "fit": "cover", "focusX": 0}),
			apitest.With(apitest.Segment("video_0", 2, clipLength), M{"trimEndMs": 1000, "transition": M{"type": "fadeWhite", "durationMs": 400}}),
		},
	}, apitest.File("video_0", redClip(t)), apitest.File("video_1", blueClip(t)))
	u.WaitRendered(t, job)
	var status struct{ DurationMs int64 }
	u.Get(t, "/api/v2/render/"+job+"/status").Expect(200).JSON(&status)
	if status.DurationMs != 2600 {
		t.Errorf("durationMs %d, want 2600", status.DurationMs)
	}
	film := u.Download(t, job)
	isFilm(t, film, 168, 300, "25/1", 2600*time.Millisecond)
	mixed := func(a, b color.RGBA, weight float64) color.RGBA {
		mix := func(a, b uint8) uint8 { return uint8(float64(a) + (float64(b)-float64(a))*weight + 0.5) }
		return color.RGBA{mix(a.R, b.R), mix(a.G, b.G), mix(a.B, b.B), 255}
	}
	white := color.RGBA{255, 255, 255, 255}
	var at []time.Duration
	for _, n := range []int{0, 14, 19, 25, 34, 39, 40, 45, 64} {
		at = append(at, time.Duration(n)*40*time.Millisecond+20*time.Millisecond)
	}
	picturesAre(t, film, at, red, red, mixed(red, blue, 5.0/11), blue, blue, mixed(blue, white, 5.0/6), mixed(red, white, 5.0/6), red, red)
	levelIs(t, film, 440, mediatest.Between(100, 500), clipLevel)
	absent(t, film, 440, mediatest.Between(1100, 1300))
	levelIs(t, film, 880, mediatest.Between(1050, 1350), clipLevel)
}
