package test

import (
	"slices"
	"testing"
	"time"

	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/mediatest"
)

// Fields for the sound affect the film. The engine's tests check the exact effects.
func TestRenderShapesTheSound(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	u := apitest.Shared(t).SignIn(t)
	var told struct{ Features []string }
	u.Get(t, "/api/v2/capabilities").Expect(200).JSON(&told)
	for _, feature := range []string{"bgm.ducking", "bgm.fade", "bgm.loop", "bgm.voice", "loudness", "volumePoints"} {
		if !slices.Contains(told.Features, feature) {
			t.Errorf("%s is not among the features", feature)
		}
	}
	film := u.RenderFilm(t, M{
		"segments": []M{
			apitest.With(apitest.Segment("video_0", 0, clipLength), M{"volumePoints": []M{{"atMs": 1000, "volume": 0}, {"atMs": 1001, "volume": 1}}}),
			apitest.With(apitest.Segment("video_1", 1, clipLength), M{"volumePoints": nil}),
		},
		"bgmClips": []M{{"audioFileKey": "bgm_0", "startMs": 0, "sourceTrimEndMs": 300, "loop": true, "endMs": 3500, "volume": 2, "fadeOutMs": 500,
			"ducking": M{"amountDb": 12, "attackMs": 200, "releaseMs": nil}, "volumePoints": []M{{"atMs": 3000, "volume": 0.5}}}},
	}, apitest.File("video_0", redClip(t)), apitest.File("video_1", silentClip(t)), apitest.File("bgm_0", music(t)))
	absent(t, film, 440, mediatest.Between(100, 950))
	levelIs(t, film, 440, mediatest.Between(1050, 1950), clipLevel)
	levelIs(t, film, 1500, mediatest.Between(100, 750), clipLevel)
	levelIs(t, film, 1500, mediatest.Between(1050, 1950), clipLevel-12)
	levelIs(t, film, 1500, mediatest.Between(2650, 2950), clipLevel)
	absent(t, film, 1500, mediatest.Between(3550, 3950))

	legacy := u.RenderFilm(t, M{"videoDurationMs": 2000, "outputKind": "audio", "loudness": M{"targetLufs": -26.3, "maxTruePeakDb": nil},
		"bgmClips": []M{{"audioFileKey": "bgm_0", "startMs": 0, "volume": 0, "fadeInMs": 500, "ducking": nil, "loop": nil, "endMs": nil}}},
		apitest.File("video", redClip(t)), apitest.File("bgm_0", music(t)))
	// The loudness of a stereo sine in LUFS is about its level in dBFS; at 440 Hz it is 0.7 lower.
	levelIs(t, legacy, 440, mediatest.Between(100, 1900), -26.3+0.69)
}

// A voice-over turns the music down, and the segments' own sound no longer does.
func TestRenderVoiceOver(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	u := apitest.Shared(t).SignIn(t)
	voice := mediatest.Tone(t, 700, time.Second)
	for volume, gain := range map[float64]float64{1: -12, 0: 0} {
		film := u.RenderFilm(t, M{"outputKind": "audio", "segments": []M{apitest.Segment("video_0", 0, clipLength)},
			"bgmClips": []M{
				{"audioFileKey": "bgm_0", "startMs": 0, "ducking": M{"amountDb": 12, "attackMs": 100, "releaseMs": 100}, "voice": false},
				{"audioFileKey": "bgm_1", "startMs": 500, "volume": volume, "voice": true},
			}}, apitest.File("video_0", redClip(t)), apitest.File("bgm_0", music(t)), apitest.File("bgm_1", voice))
		levelIs(t, film, 1500, mediatest.Between(50, 390), clipLevel)
		levelIs(t, film, 1500, mediatest.Between(520, 1480), clipLevel+gain)
		levelIs(t, film, 1500, mediatest.Between(1610, 1950), clipLevel)
		levelIs(t, film, 440, mediatest.Between(100, 1900), clipLevel)
	}
}
