// Stems in films: replaced ranges, offsets, speed, and the forms of a reference.

package test

import (
	"strings"
	"testing"
	"time"

	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/mediatest"
)

// mixtureClip makes a video with the sound of mixture: 300 Hz and 1200 Hz.
func mixtureClip(t testing.TB) string {
	return fixture(t, "mixture clip", func(t testing.TB) string {
		path := t.TempDir() + "/mixture.mp4"
		mediatest.FFmpeg(t, "-f", "lavfi", "-i", "color=gray:s=160x90:r=25:d=3", "-i", mixture(t),
			"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-c:a", "aac", "-b:a", "192k", "-shortest", path)
		return path
	})
}

// mixtureLevel is the level of each tone in mixture, in dBFS.
const mixtureLevel = -13.98

func directive(from, to int, more M) M {
	return apitest.With(M{"id": "d", "rangeStartMs": from, "rangeEndMs": to}, more)
}

func selection(stem apitest.Stem, volume float64) M {
	return M{"stemId": stem.StemID, "audioUrl": stem.URL, "volume": volume}
}

// named selects a stem by its ids. Unlike its URL, they do not expire.
func named(separation, stem string, volume float64) M {
	return M{"stemId": stem, "separationJobId": separation, "volume": volume}
}

func TestRenderStems(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	u := apitest.Shared(t).SignIn(t)
	job := u.WaitReady(t, u.Separate(t, mixture(t)))
	voice, background := job.Stem(t, "voice_all"), job.Stem(t, "background")
	render := func(directives ...M) string {
		t.Helper()
		return u.RenderFilm(t, M{
			"segments":             []M{apitest.Segment("video_0", 0, mixtureLength)},
			"separationDirectives": directives,
		}, apitest.File("video_0", mixtureClip(t)))
	}
	t.Run("unmuting every stem restores the original, and stems can be added to it", func(t *testing.T) {
		film := render(directive(0, 1500, M{"muteOriginalSegmentAudio": true, "selections": []M{selection(voice, 1), selection(background, 1)}}),
			directive(1500, 3000, M{"selections": []M{selection(background, 1)}}))
		levelIs(t, film, 300, mediatest.Between(200, 1400), mixtureLevel)
		levelIs(t, film, 1200, mediatest.Between(200, 1400), mixtureLevel)
		levelIs(t, film, 300, mediatest.Between(1600, 2800), mixtureLevel+6.02)
		levelIs(t, film, 1200, mediatest.Between(1600, 2800), mixtureLevel)
	})
	t.Run("only the voice in a range, silence in another", func(t *testing.T) {
		film := render(directive(700, 1500, M{"muteOriginalSegmentAudio": true, "selections": []M{named(job.JobID, "voice_all", 0.5)}}),
			directive(2000, 2700, M{"muteOriginalSegmentAudio": true}))
		for _, w := range []mediatest.Window{mediatest.Between(100, 600), mediatest.Between(1600, 1900)} {
			levelIs(t, film, 300, w, mixtureLevel)
			levelIs(t, film, 1200, w, mixtureLevel)
		}
		in := mediatest.Between(800, 1400)
		levelIs(t, film, 1200, in, mixtureLevel-6.02)
		absent(t, film, 300, in)
		if d := mediatest.Silent(t, film, 0.003, mediatest.Between(2050, 2650)); d < 550*time.Millisecond {
			t.Errorf("%v of silence in the muted range", d)
		}
	})
	t.Run("path-only URL of a voice that the request misnames, audio output, music is turned down, not muted", func(t *testing.T) {
		path := voice
		path.URL, path.StemID = stemPath(t, voice), background.StemID
		sound := u.RenderFilm(t, M{
			"outputKind":           "audio",
			"segments":             []M{apitest.Segment("video_0", 0, mixtureLength)},
			"bgmClips":             []M{{"audioFileKey": "bgm_0", "startMs": 0, "volume": 0.5, "ducking": M{"amountDb": 12}}},
			"separationDirectives": []M{directive(0, 3000, M{"muteOriginalSegmentAudio": true, "selections": []M{selection(path, 1)}})},
		}, apitest.File("video_0", mixtureClip(t)), apitest.File("bgm_0", music(t)))
		levelIs(t, sound, 1200, mediatest.Between(200, 2800), mixtureLevel)
		levelIs(t, sound, 1500, mediatest.Between(200, 2800), clipLevel-6.02-12)
		absent(t, sound, 300, mediatest.Between(200, 2800))
	})
}

// A stem that changes over time reveals the offset and the speed of its range.
func TestRenderStemOffsetAndSpeed(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	u := apitest.Shared(t).SignIn(t)
	// 1200 Hz for 1.5 s, then 880 Hz for 1.5 s. Both tones are voice.
	source := t.TempDir() + "/steps.wav"
	mediatest.FFmpeg(t, "-f", "lavfi", "-i", "sine=1200:d=1.5:r=48000", "-f", "lavfi", "-i", "sine=880:d=1.5:r=48000",
		"-filter_complex", "concat=n=2:v=0:a=1", "-ac", "2", source)
	voice := u.WaitReady(t, u.Separate(t, source)).Stem(t, "voice_all")
	film := u.RenderFilm(t, M{
		"segments": []M{apitest.Segment("video_0", 0, clipLength), apitest.Segment("video_0", 1, clipLength)},
		"separationDirectives": []M{
			directive(0, 1000, M{"selections": []M{selection(voice, 1)}, "sourceOffsetMs": 1500}),
			directive(2000, 3500, M{"selections": []M{selection(voice, 1)}, "appliedSpeedScale": 2}),
		},
	}, apitest.File("video_0", silentClip(t)))
	toneIs(t, film, mediatest.Between(100, 900), 880)
	absent(t, film, 880, mediatest.Between(1100, 1900))
	absent(t, film, 1200, mediatest.Between(1100, 1900))
	// Three seconds of the stem play in 1.5 s: the tone changes after half the time, at the same pitch.
	toneIs(t, film, mediatest.Between(2100, 2650), 1200)
	toneIs(t, film, mediatest.Between(2850, 3400), 880)
}

// The separation package tests all links and names.
func TestRenderStemReferences(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	u, other := s.SignIn(t), s.SignIn(t)
	job := u.WaitReady(t, u.Separate(t, mixture(t)))
	voice := job.Stem(t, "voice_all")
	link := func(url string) M { return M{"stemId": "voice_all", "audioUrl": url} }
	submit := func(u *apitest.User, selection M) *apitest.Response {
		return u.Send(t, apitest.Request{Method: "POST", Path: "/api/v2/render", Form: apitest.RenderForm(t, M{
			"segments":             []M{apitest.Segment("video_0", 0, clipLength)},
			"separationDirectives": []M{directive(0, 1000, M{"selections": []M{selection}})},
		}, apitest.File("video_0", silentClip(t)))})
	}
	_, token, _ := strings.Cut(voice.URL, "?token=")
	for name, bad := range map[string]M{ // a user may submit ten renders a minute
		"changed token":       link(strings.Replace(voice.URL, "?token=", "?token=9", 1)),
		"another path":        link(s.URL + "/api/v2/credits?token=" + token),
		"a file":              link("file:///etc/passwd"),
		"the provider's link": link(s.World.Servers()["separation_storage"] + "/perso-storage/1/voice.wav"),
		"unknown stem":        named(job.JobID, "speaker_9", 1),
		"a render":            named("rnd-"+job.JobID[4:], "voice_all", 1),
	} {
		t.Run(name, func(t *testing.T) { submit(u, bad).Error(400, "invalid_stem_url") })
	}
	submit(other, link(voice.URL)).Error(400, "invalid_stem_url")
	submit(other, named(job.JobID, "voice_all", 1)).Error(400, "invalid_stem_url")
	submit(other, named("sep-\x00", "voice_all", 1)).Error(400, "invalid_stem_url")
	submit(other, M{"stemId": "voice_all", "separationJobId": nil}).Error(400, "invalid_stem_url")
	both := named(job.JobID, "voice_all", 1)
	both["audioUrl"] = voice.URL
	submit(u, both).Sentence(400, "audioUrl")
	submit(u, selection(voice, 11)).Sentence(400, "volume")

	// Only the caller's own expired link gets the detail that it is expired.
	path, _, _ := strings.Cut(stemPath(t, voice), "?")
	detail := func(u *apitest.User, secret string) string {
		t.Helper()
		token := signedStem(secret, job.JobID, "voice_all", time.Now().Add(-time.Hour))
		return submit(u, link(path+"?token="+token)).Error(400, "invalid_stem_url").Detail()
	}
	secret := s.Config("SEPARATION_SIGNING_SECRET")
	if got := detail(u, secret); got != "expired" {
		t.Errorf("an expired link: detail %q", got)
	}
	if got := detail(u, secret+"x"); got != "" {
		t.Errorf("an expired link signed with another secret: detail %q", got)
	}
	if got := detail(other, secret); got != "" {
		t.Errorf("another user's expired link: detail %q", got)
	}
}
