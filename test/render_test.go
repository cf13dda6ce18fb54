// Renders from submission to download: segments, trims, speed, inputs, music and audio-only films.

package test

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/mediatest"
)

func TestRenderTwoSegments(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	u := apitest.Shared(t).SignIn(t)
	// The list is not in the order of the order fields.
	film := u.RenderFilm(t, M{"segments": []M{
		apitest.Segment("video_1", 5, clipLength), apitest.Segment("video_0", 2, clipLength),
	}}, apitest.File("video_0", redClip(t)), apitest.File("video_1", blueClip(t)))
	isFilm(t, film, 320, 180, "25/1", 2*clipLength)
	mediatest.ConstantRate(t, film, 25, 100, time.Millisecond)
	pictures := picturesAre(t, film, mediatest.Every(time.Second, 2*time.Second, 2), red, blue)
	// The square clip has black bars at its sides.
	side := mediatest.ColorAt(pictures[1], 0.05, 0.5)
	if mediatest.ColorDistance(side, black) > 24 {
		t.Errorf("beside the fitted clip is %v, want black", side)
	}
	toneIs(t, film, mediatest.Between(200, 1800), 440)
	toneIs(t, film, mediatest.Between(2200, 3800), 880)
	levelIs(t, film, 440, mediatest.Between(200, 1800), clipLevel)
	absent(t, film, 880, mediatest.Between(200, 1800))
}

func TestRenderDownload(t *testing.T) {
	t.Parallel()
	u := apitest.Shared(t).SignIn(t)
	id := u.Render(t, M{"segments": []M{apitest.Segment("video", 0, clipLength)}}, apitest.File("video", redClip(t)))
	if !strings.HasPrefix(id, "rnd-") {
		t.Errorf("job id %s", id)
	}
	path := "/api/v2/render/" + id + "/download"
	if early := u.Get(t, path); early.Status == 404 { // the film is not ready yet
		early.Sentence(404)
	}
	u.WaitRendered(t, id)
	if st := u.Status(t, id); st.Progress != 100 || st.Error != "" || st.ProgressReason != "" {
		t.Errorf("status when COMPLETED: %+v", st)
	}
	res := u.Get(t, path)
	if u.HasBucket() {
		res.Expect(302)
		location := res.Header.Get("Location")
		whole := u.Outside(t, "GET", location, nil, nil).Expect(200)
		if d := whole.Header.Get("Content-Disposition"); !strings.Contains(d, id+".mp4") {
			t.Errorf("Content-Disposition of the presigned download: %q", d)
		}
		if ct := whole.Header.Get("Content-Type"); ct != "video/mp4" {
			t.Errorf("Content-Type of the presigned download: %q", ct)
		}
		// A client follows the redirect of a HEAD request with HEAD, and a signature is valid for one method.
		head := u.Send(t, apitest.Request{Method: "HEAD", Path: path}).Expect(302)
		answer := u.Outside(t, "HEAD", head.Header.Get("Location"), nil, nil).Expect(200)
		if got, want := answer.Header.Get("Content-Length"), strconv.Itoa(len(whole.Body)); got != want || answer.Header.Get("Content-Type") != "video/mp4" {
			t.Errorf("HEAD of the presigned download: %s bytes of %s, want %s of video/mp4", got, answer.Header.Get("Content-Type"), want)
		}
		return
	}
	res.Expect(200)
	if d := res.Header.Get("Content-Disposition"); d != `attachment; filename="`+id+`.mp4"` {
		t.Errorf("Content-Disposition %s", d)
	}
	if ct := res.Header.Get("Content-Type"); ct != "video/mp4" {
		t.Errorf("Content-Type %s", ct)
	}
	checkRanges(t, u.Server, apitest.Request{Path: path, Token: u.Token, Valid: true}, res.Body)
	etag := res.Header.Get("ETag")
	again := u.Send(t, apitest.Request{Path: path, Header: http.Header{"If-None-Match": {etag}}, Valid: true})
	again.Expect(304)
	u.Send(t, apitest.Request{Path: path, Header: http.Header{"If-None-Match": {`"other"`}}}).Expect(200)
	part := u.Send(t, apitest.Request{Path: path, Header: http.Header{"Range": {"bytes=0-9"}, "If-Range": {etag}}})
	part.Expect(206)
	u.Send(t, apitest.Request{Path: path, Header: http.Header{"Range": {"bytes=0-9"}, "If-Range": {`"other"`}}}).Expect(200)
}

func TestRenderTrimSpeedAndVolume(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	u := apitest.Shared(t).SignIn(t)
	film := u.RenderFilm(t, M{"segments": []M{
		apitest.With(apitest.Segment("video_0", 0, clipLength), M{"trimStartMs": 500, "trimEndMs": 1500, "volumeScale": 0.5}),
		apitest.With(apitest.Segment("video_1", 1, clipLength), M{"speedScale": 2.0, "trimEndMs": 0}),
		apitest.With(apitest.Segment("video_0", 2, clipLength), M{"speedScale": 0.5, "trimStartMs": 1500, "trimEndMs": nil, "volumeScale": 0}),
		apitest.With(apitest.Segment("video_1", 3, clipLength), M{"trimStartMs": 1000, "trimEndMs": 99000}), // past the clip's end
	}}, apitest.File("video_0", redClip(t)), apitest.File("video_1", blueClip(t)))
	isFilm(t, film, 320, 180, "25/1", 4*time.Second)
	picturesAre(t, film, mediatest.Every(500*time.Millisecond, time.Second, 4), red, blue, red, blue)
	levelIs(t, film, 440, mediatest.Between(200, 800), clipLevel-6.02)
	// Speed does not change the pitch.
	levelIs(t, film, 880, mediatest.Between(1200, 1800), clipLevel)
	absent(t, film, 440, mediatest.Between(2200, 2800))
	levelIs(t, film, 880, mediatest.Between(3200, 3800), clipLevel)
}

// uploadInput uploads a video for several renders.
func uploadInput(t testing.TB, u *apitest.User, path string) *apitest.Response {
	t.Helper()
	return u.Send(t, apitest.Request{Method: "POST", Path: "/api/v2/render/inputs", Valid: true,
		Form: []apitest.Part{{Name: "video", Path: path, Filename: "v.mp4", Type: "video/mp4"}}})
}

// cacheInput returns the id of an uploaded video.
func cacheInput(t testing.TB, u *apitest.User, path string) string {
	t.Helper()
	var input struct{ InputID string }
	uploadInput(t, u, path).Expect(200).JSON(&input)
	return input.InputID
}

func TestRenderInputs(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	u, other := s.SignIn(t), s.SignIn(t)
	var first, second, foreign struct {
		InputID                   string
		ExpiresAt, VideoSizeBytes int64
	}
	uploadInput(t, u, redClip(t)).Expect(200).JSON(&first)
	if first.InputID != sha256Of(t, redClip(t))[:16] {
		t.Errorf("inputId %s is not the beginning of the sha256", first.InputID)
	}
	info, err := os.Stat(redClip(t))
	if err != nil {
		t.Fatal(err)
	}
	if first.VideoSizeBytes != info.Size() {
		t.Errorf("videoSizeBytes %d, want %d", first.VideoSizeBytes, info.Size())
	}
	if left := time.Until(time.UnixMilli(first.ExpiresAt)); left < 23*time.Hour+58*time.Minute || left > 24*time.Hour+time.Minute {
		t.Errorf("expires in %v, want 24 h", left)
	}
	uploadInput(t, u, redClip(t)).Expect(200).JSON(&second)
	if second.InputID != first.InputID || second.ExpiresAt < first.ExpiresAt {
		t.Errorf("the same bytes again: %+v after %+v", second, first)
	}
	render := func(u *apitest.User, config M, id string) *apitest.Response {
		t.Helper()
		form := apitest.RenderForm(t, config, apitest.Part{Name: "inputId", Text: id})
		return u.Send(t, apitest.Request{Method: "POST", Path: "/api/v2/render", Form: form})
	}
	// The legacy form, and segments with any key that begins with video.
	job := render(u, M{"videoDurationMs": 1000}, first.InputID).Job(200)
	u.WaitRendered(t, job)
	isFilm(t, u.Download(t, job), 320, 180, "25/1", time.Second)
	job = render(u, M{"segments": []M{
		apitest.With(apitest.Segment("video", 0, clipLength), M{"trimEndMs": 400}),
		apitest.With(apitest.Segment("video_7", 1, clipLength), M{"trimStartMs": 1600}),
	}}, first.InputID).Job(200)
	u.WaitRendered(t, job)
	isFilm(t, u.Download(t, job), 320, 180, "25/1", 800*time.Millisecond)

	// An input belongs to its uploader, even if another user has the same bytes.
	render(other, M{"videoDurationMs": 1000}, first.InputID).Sentence(400)
	render(u, M{"videoDurationMs": 1000}, "0123456789abcdef").Sentence(400)
	render(u, M{"videoDurationMs": 1000}, "../../etc/passwd").Sentence(400)
	// This applies even if nothing would be cut from the input.
	form := apitest.RenderForm(t, M{"segments": []M{apitest.Segment("clip", 0, clipLength)}},
		apitest.Part{Name: "inputId", Text: "0123456789abcdef"}, apitest.File("clip", redClip(t)))
	u.Send(t, apitest.Request{Method: "POST", Path: "/api/v2/render", Form: form}).Sentence(400, "inputId")
	uploadInput(t, s.SignIn(t), music(t)).Sentence(400, "video")
	uploadInput(t, other, redClip(t)).Expect(200).JSON(&foreign)
	if foreign.InputID != first.InputID {
		t.Errorf("the same file has the inputs %s and %s", first.InputID, foreign.InputID)
	}
	render(other, M{"videoDurationMs": 1000}, first.InputID).Expect(200)

	// Bad uploads.
	u.Send(t, apitest.Request{Method: "POST", Path: "/api/v2/render/inputs", Form: []apitest.Part{}}).Sentence(400)
	u.Send(t, apitest.Request{Method: "POST", Path: "/api/v2/render/inputs",
		Form: []apitest.Part{{Name: "film", Path: redClip(t)}}}).Sentence(400, "video")
	u.Send(t, apitest.Request{Method: "POST", Path: "/api/v2/render/inputs",
		Form: []apitest.Part{{Name: "video", Bytes: []byte{}}}}).Sentence(400)
}

func TestRenderBackgroundMusic(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	u := apitest.Shared(t).SignIn(t)
	film := u.RenderFilm(t, M{
		"segments": []M{apitest.Segment("video_0", 0, clipLength), apitest.Segment("video_1", 1, clipLength)},
		"bgmClips": []M{
			{"audioFileKey": "bgm_0.audio", "startMs": 1000, "sourceTrimStartMs": 500, "sourceTrimEndMs": 2500, "speed": 2.0, "volume": 0.5},
			{"audioFileKey": "bgm_0.audio", "startMs": 3000, "sourceTrimStartMs": 0, "sourceTrimEndMs": 0},
			{"audioFileKey": "bgm_0.audio", "startMs": 3600000}, // after the end
		},
	}, apitest.File("video_0", redClip(t)), apitest.File("video_1", silentClip(t)),
		apitest.Part{Name: "bgm_0.audio", Path: music(t), Type: "audio/*", Unquoted: true})
	isFilm(t, film, 320, 180, "25/1", 2*clipLength)
	absent(t, film, 1500, mediatest.Between(100, 900))
	levelIs(t, film, 1500, mediatest.Between(1100, 1900), clipLevel-6.02) // two seconds at double speed, at the same pitch
	absent(t, film, 1500, mediatest.Between(2100, 2900))
	levelIs(t, film, 1500, mediatest.Between(3100, 3900), clipLevel) // ends with the film
	// Music does not change the level of the film's own sound.
	levelIs(t, film, 440, mediatest.Between(100, 900), clipLevel)
	levelIs(t, film, 440, mediatest.Between(1100, 1900), clipLevel)
	if silent := mediatest.Silent(t, film, 0.003, mediatest.Between(2100, 2900)); silent < 700*time.Millisecond {
		t.Errorf("a clip without audio adds %v of silence, want 0.8 s", silent)
	}
}

func TestRenderAudioOnly(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	u := apitest.Shared(t).SignIn(t)
	id := u.Render(t, M{
		"outputKind": "audio", "quality": "low",
		"segments": []M{apitest.Segment("video_0", 0, clipLength), apitest.Segment("video_1", 1, clipLength)},
		"bgmClips": []M{{"audioFileKey": "bgm_0", "startMs": 0, "sourceTrimEndMs": 1000, "volume": 0.5}},
	}, apitest.File("video_0", redClip(t)), apitest.File("video_1", blueClip(t)), apitest.File("bgm_0", music(t)))
	u.WaitRendered(t, id)
	path := u.Download(t, id)
	if filepath.Ext(path) != ".m4a" {
		t.Errorf("served as %s, want audio/mp4", filepath.Ext(path))
	}
	m := mediatest.Inspect(t, path)
	if m.Has("video") {
		t.Error("an audio output has a video track")
	}
	isSound(t, m.Audio(t), 2*clipLength)
	// The bit rate is 192k at any quality (SPEC 2.2). A sine needs less, so require only half of it.
	toneIs(t, path, mediatest.Between(1200, 1800), 440)
	toneIs(t, path, mediatest.Between(2200, 3800), 880)
	levelIs(t, path, 1500, mediatest.Between(100, 900), clipLevel-6.02)
	res := u.Get(t, "/api/v2/render/"+id+"/download")
	if d := res.Header.Get("Content-Disposition"); !strings.HasSuffix(d, `.m4a"`) {
		t.Errorf("Content-Disposition %s", d)
	}
}
