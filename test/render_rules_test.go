package test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cutroom/internal/apitest"
	"cutroom/internal/mediatest"
)

// newSubmitter returns a user for some submits: ten a minute are allowed, so a
// table of refusals changes users on the way.
func newSubmitter(t testing.TB, s *apitest.Server) func() *apitest.User {
	var u *apitest.User
	used := 0
	return func() *apitest.User {
		if used++; u == nil || used > 9 {
			u, used = s.SignIn(t), 1
		}
		return u
	}
}

// renderConfig is a valid configuration with one segment, one clip and one
// directive without stems, to be spoiled by change.
func renderConfig(change func(c, segment, clip, directive M)) M {
	segment := M{"sourceFileKey": "video_0", "order": 0, "durationMs": 2000}
	clip := M{"audioFileKey": "bgm_0", "startMs": 0}
	directive := M{"id": "d0", "rangeStartMs": 0, "rangeEndMs": 500}
	c := M{"segments": []any{segment}, "bgmClips": []any{clip}, "separationDirectives": []any{directive}}
	change(c, segment, clip, directive)
	return c
}

// brokenRules are samples of CONTRACT 4: what is wrong, and the words by which the
// sentence must name the field. The whole table is a test of the timeline package.
var brokenRules = []struct {
	name   string
	change func(c, segment, clip, directive M)
	words  []string
}{
	{"config as source", func(_, s, _, _ M) { s["sourceFileKey"] = "config" }, []string{"segments[0].sourceFileKey"}},
	{"path as source", func(_, s, _, _ M) { s["sourceFileKey"] = "../../etc/passwd" }, []string{"segments[0]"}},
	{"null order", func(_, s, _, _ M) { s["order"] = nil }, []string{"segments[0].order"}},
	{"trim end before start", func(_, s, _, _ M) { s["trimStartMs"], s["trimEndMs"] = 500, 400 }, []string{"segments[0].trimEndMs"}},
	{"second segment", func(c, s, _, _ M) {
		c["segments"] = []any{s, apitest.With(s, M{"speedScale": 0})}
	}, []string{"segments[1].speedScale"}},
	{"201 segments", func(c, s, _, _ M) { c["segments"] = slices.Repeat([]any{s}, 201) }, []string{"segments", "200"}},
	{"legacy without a video part", func(c, _, _, _ M) { delete(c, "segments"); c["videoDurationMs"] = 1000 }, []string{"video"}},
	{"unknown audio part", func(_, _, b, _ M) { b["audioFileKey"] = "bgm_4" }, []string{"bgmClips[0].audioFileKey"}},
	{"music volume above 10", func(_, _, b, _ M) { b["volume"] = 11 }, []string{"bgmClips[0].volume"}},
	{"65 clips", func(c, _, b, _ M) { c["bgmClips"] = slices.Repeat([]any{b}, 65) }, []string{"bgmClips", "64"}},
	{"no range start", func(_, _, _, d M) { delete(d, "rangeStartMs") }, []string{"separationDirectives[0].rangeStartMs"}},
	{"stem offset negative", func(_, _, _, d M) { d["sourceOffsetMs"] = -1 }, []string{"separationDirectives[0].sourceOffsetMs"}},
	{"unknown kind", func(c, _, _, _ M) { c["outputKind"] = "gif" }, []string{"outputKind"}},
	{"unknown quality", func(c, _, _, _ M) { c["quality"] = "ultra" }, []string{"quality"}},
}

func TestRenderRules(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Shared(t)
	submitter := newSubmitter(t, s)
	for _, tt := range brokenRules {
		t.Run(tt.name, func(t *testing.T) {
			form := apitest.RenderForm(t, renderConfig(tt.change), apitest.File("video_0", redClip(t)), apitest.File("bgm_0", music(t)))
			submitter().Send(t, apitest.Request{Method: "POST", Path: "/api/v2/render", Form: form}).Sentence(400, tt.words...)
		})
	}
}

func TestRenderForms(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Shared(t)
	submitter := newSubmitter(t, s)
	send := func(form ...apitest.Part) *apitest.Response {
		t.Helper()
		return submitter().Send(t, apitest.Request{Method: "POST", Path: "/api/v2/render", Form: form})
	}
	video := apitest.File("video", redClip(t))
	legacy := apitest.Part{Name: "config", Text: `{"videoDurationMs":500}`}
	send(video).Sentence(400, "config")
	send(legacy).Sentence(400, "video")
	send(video, apitest.Part{Name: "config", Text: ""}).Expect(400)
	send(video, apitest.Part{Name: "config", Text: "null"}).Expect(400)
	send(video, apitest.Part{Name: "config", Text: `{"videoDurationMs":500`}).Error(400, "bad_request")
	if res := send(video, apitest.Part{Name: "config", Text: `{"x":"` + strings.Repeat("x", 1<<20) + `"}`}); res.Status != 400 && res.Status != 413 {
		t.Errorf("a config of more than 1 MiB: %d", res.Status)
	}
	many := []apitest.Part{legacy}
	for i := range 64 {
		many = append(many, apitest.Part{Name: fmt.Sprintf("video_%d", i), Bytes: []byte("x")})
	}
	if res := send(many...); res.Status != 400 && res.Status != 413 {
		t.Errorf("65 parts: %d", res.Status)
	}
	send(apitest.Part{Name: "video", Bytes: []byte{}}, legacy).Sentence(400)
	u := s.SignIn(t)
	for _, r := range []apitest.Request{
		{Raw: `{"videoDurationMs":500}`},
		{Raw: "no multipart at all", Header: http.Header{"Content-Type": {"multipart/form-data"}}},
		{Raw: "no multipart at all", Header: http.Header{"Content-Type": {"multipart/form-data; boundary=x"}}},
		{Raw: "--x\r\nContent-Disposition: form-data; name=\"config\"\r\n\r\n{}", Header: http.Header{"Content-Type": {"multipart/form-data; boundary=x"}}},
		{},
	} {
		r.Method, r.Path = "POST", "/api/v2/render"
		u.Send(t, r).Expect(400)
	}
	noFilesLeft(t, s)
	// What clients send: a typed config part, unquoted names, parts in any
	// order and parts that nothing refers to.
	send(apitest.Part{Name: "config", Type: "application/json", Text: `{"videoDurationMs":500,"segments":null,"bgmClips":null,
		"separationDirectives":null,"outputKind":null,"quality":null,"stickers":[{}]}`},
		apitest.Part{Name: "video", Path: redClip(t), Unquoted: true, Filename: "clip.txt", Type: "text/plain"},
		apitest.Part{Name: "bgm_0", Path: music(t)}).Expect(200)
}

func TestRenderTooLarge(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Env("MAX_UPLOAD_FILE_SIZE_MB", "1"))
	u := s.SignIn(t)
	big := bytes.Repeat([]byte("x"), 3<<20)
	form := apitest.RenderForm(t, M{"videoDurationMs": 500}, apitest.Part{Name: "video", Bytes: big})
	u.Send(t, apitest.Request{Method: "POST", Path: "/api/v2/render", Form: form}).Expect(413)
	u.Send(t, apitest.Request{Method: "POST", Path: "/api/v2/render/inputs", Form: []apitest.Part{{Name: "video", Bytes: big}}}).Expect(413)
	noFilesLeft(t, s)
	u.RenderFilm(t, M{"videoDurationMs": 500}, apitest.File("video", redClip(t)))
}

// Files that are no media, or media of the wrong kind, are either refused at
// submit with a sentence or end as a FAILED job with one.
func TestRenderHostileInputs(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Shared(t)
	submitter := newSubmitter(t, s)
	secret := filepath.Join(t.TempDir(), "secret.wav")
	mediatest.FFmpeg(t, "-f", "lavfi", "-i", "sine=frequency=1200:duration=2", secret)
	good, err := os.ReadFile(redClip(t))
	if err != nil {
		t.Fatal(err)
	}
	inputs := map[string][]byte{
		"text":              []byte("this is not a film\n"),
		"zeros":             make([]byte, 4096),
		"playlist":          []byte("#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\nfile://" + secret + "\n#EXT-X-ENDLIST\n"),
		"playlist by http":  []byte("#EXTM3U\n#EXTINF:2,\n" + s.World.Servers()["provider_a"] + "/x.ts\n#EXT-X-ENDLIST\n"),
		"ffconcat":          []byte("ffconcat version 1.0\nfile '" + secret + "'\nduration 2\n"),
		"svg":               []byte(`<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"><image xlink:href="file:///etc/passwd"/></svg>`),
		"sdp":               []byte("v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5000 RTP/AVP 96\n"),
		"only the header":   good[:64],
		"cut in the middle": good[:len(good)/2],
		"png":               mediatest.FFmpeg(t, "-f", "lavfi", "-i", "color=red:s=64x64", "-frames:v", "1", "-f", "image2pipe", "-c:v", "png", "-"),
		"gif":               mediatest.FFmpeg(t, "-f", "lavfi", "-i", "color=red:s=64x64:d=1", "-f", "gif", "-"),
		"audio only":        readFile(t, music(t)),
	}
	for name, content := range inputs {
		t.Run(name, func(t *testing.T) {
			u := submitter()
			form := apitest.RenderForm(t, M{"segments": []M{apitest.Segment("video_0", 0, clipLength)}},
				apitest.Part{Name: "video_0", Bytes: content, Filename: "film.mp4", Type: "video/mp4"})
			res := u.Send(t, apitest.Request{Method: "POST", Path: "/api/v2/render", Form: form})
			if res.Status == 400 {
				res.Sentence(400)
				return
			}
			var job struct{ JobID string }
			res.Expect(200).JSON(&job)
			end := u.WaitFinished(t, job.JobID)
			want := "source_unreadable"
			if name == "audio only" {
				want = "no_media"
			}
			if end.ErrorCode != want || !strings.Contains(end.Error, " ") {
				t.Errorf("ended %s with %q (%s), want %s and a sentence", end.Status, end.Error, end.ErrorCode, want)
			}
			for _, bad := range []string{"ffmpeg", "/", "Invalid data", "moov"} {
				if strings.Contains(end.Error, bad) {
					t.Errorf("the sentence holds %q: %s", bad, end.Error)
				}
			}
			u.Send(t, apitest.Request{Path: "/api/v2/render/" + job.JobID + "/download"}).Sentence(404)
		})
	}
	t.Run("music that is none", func(t *testing.T) {
		u := submitter()
		form := apitest.RenderForm(t, M{"segments": []M{apitest.Segment("video_0", 0, clipLength)}, "bgmClips": []M{{"audioFileKey": "bgm_0", "startMs": 0}}},
			apitest.File("video_0", redClip(t)), apitest.Part{Name: "bgm_0", Bytes: []byte("#EXTM3U\nfile://" + secret + "\n")})
		res := u.Send(t, apitest.Request{Method: "POST", Path: "/api/v2/render", Form: form})
		if res.Status == 400 {
			res.Sentence(400)
			return
		}
		var job struct{ JobID string }
		res.Expect(200).JSON(&job)
		if end := u.WaitFinished(t, job.JobID); end.ErrorCode != "source_unreadable" {
			t.Errorf("ended %s: %s", end.Status, end.ErrorCode)
		}
	})
	if n := s.World.ProviderA.Faults.Count("unknown"); n != 0 {
		t.Errorf("an upload made the service fetch %d times from another server", n)
	}
	noFilesLeft(t, s)
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
