package test

import (
	"image/color"
	"math"
	"testing"
	"time"

	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/mediatest"
)

// The API reports the length of a vertical film with a dissolve and a fade to white. The film has that length.
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
	var at []time.Duration
	for _, n := range []int{0, 14, 19, 25, 34, 39, 40, 45, 64} {
		at = append(at, time.Duration(n)*40*time.Millisecond+20*time.Millisecond)
	}
	picturesAre(t, film, at, red, red, mixed(red, blue, 5.0/11), blue, blue, mixed(blue, white, 5.0/6), mixed(red, white, 5.0/6), red, red)
	levelIs(t, film, 440, mediatest.Between(100, 500), clipLevel)
	absent(t, film, 440, mediatest.Between(1100, 1300))
	levelIs(t, film, 880, mediatest.Between(1050, 1350), clipLevel)
}

// point is the colour at a point of a frame. Its coordinates run from 0 to 1, to the right and downwards.
type point struct {
	frame int
	x, y  float64
	want  color.RGBA
}

// pointsAre fails the test unless the points of a film with that frame rate have their colours.
func pointsAre(t testing.TB, film string, rate int, points []point) {
	t.Helper()
	for _, p := range points {
		picture := mediatest.Frame(t, film, time.Duration(2*p.frame+1)*time.Second/time.Duration(2*rate))
		if got := mediatest.ColorAt(picture, p.x, p.y); mediatest.ColorDistance(got, p.want) > 24 {
			t.Errorf("frame %d at %v, %v is %v, want %v", p.frame, p.x, p.y, got, p.want)
		}
	}
}

// One film with most of the vocabulary: a vertical canvas with its own size and rate, mixed clips, a push, a wipe, both
// ends, a voice-over that turns music down, and loudness. It is the same film whether its media are uploaded with it or
// are assets.
func TestRenderEverythingTogether(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	u := apitest.Start(t, apitest.Bucket(true)).SignIn(t)
	voice := mediatest.Tone(t, 300, 600*time.Millisecond)
	config := M{
		"canvas":   M{"aspect": "9:16", "shortSide": 360, "frameRate": 30, "fit": "cover"},
		"fadeIn":   M{"durationMs": 200},
		"fadeOut":  M{"color": "white", "durationMs": 200},
		"loudness": M{"targetLufs": -20},
		"segments": []M{
			apitest.With(apitest.Segment("video_0", 0, clipLength), M{"trimEndMs": 1000}),
			apitest.With(apitest.Segment("video_1", 1, clipLength), M{"trimEndMs": 1000, "transition": M{"type": "push", "durationMs": 300}}),
			apitest.With(apitest.Segment("video_0", 2, clipLength), M{"trimEndMs": 1000, "transition": M{"type": "wipe", "direction": "up", "durationMs": 300}}),
		},
		"bgmClips": []M{
			{"startMs": 0, "audioFileKey": "bgm_0", "ducking": M{"amountDb": 12, "attackMs": 50, "releaseMs": 50}},
			{"startMs": 1200, "audioFileKey": "bgm_1", "voice": true},
		},
	}
	film := u.RenderFilm(t, config, apitest.File("video_0", redClip(t)), apitest.File("video_1", blueClip(t)), apitest.File("bgm_0", music(t)),
		apitest.File("bgm_1", voice))
	isFilm(t, film, 360, 640, "30/1", 2400*time.Millisecond)
	pointsAre(t, film, 30, []point{
		{0, 0.5, 0.5, black}, {10, 0.5, 0.5, red},
		{25, 0.25, 0.5, red}, {25, 0.75, 0.5, blue}, // the fifth of nine frames: half of the canvas
		{36, 0.5, 0.5, blue},
		{46, 0.5, 0.25, blue}, {46, 0.5, 0.75, red},
		{60, 0.5, 0.5, red}, {71, 0.5, 0.5, white},
	})
	before, under := mediatest.ToneLevel(t, film, 1500, mediatest.Between(600, 1000)), mediatest.ToneLevel(t, film, 1500, mediatest.Between(1300, 1700))
	if math.Abs(before-under-12) > 0.5 {
		t.Errorf("the voice turns the music down by %.1f dB, want 12", before-under)
	}

	videos := []string{uploadAsset(t, u, redClip(t), "mp4", "video/mp4"), uploadAsset(t, u, blueClip(t), "mp4", "video/mp4")}
	sounds := []string{uploadAsset(t, u, music(t), "wav", "audio/wav"), uploadAsset(t, u, voice, "wav", "audio/wav")}
	for i, s := range config["segments"].([]M) {
		delete(s, "sourceFileKey")
		s["sourceAssetKey"] = videos[i%2]
	}
	for i, c := range config["bgmClips"].([]M) {
		delete(c, "audioFileKey")
		c["audioAssetKey"] = sounds[i]
	}
	job := u.Post(t, "/api/v2/render/v3", config).Job(200)
	u.WaitRendered(t, job)
	if mediatest.Digest(t, u.Download(t, job)) != mediatest.Digest(t, film) {
		t.Error("the film of assets differs from that of uploads")
	}
}
