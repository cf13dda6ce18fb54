package test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/mediatest"
)

// newSubmitter returns a function that returns a user. It changes users before they reach the limit of ten submissions
// per minute.
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

func TestRenderForms(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Shared(t)
	u := s.SignIn(t)
	send := func(form ...apitest.Part) *apitest.Response {
		t.Helper()
		return u.Send(t, apitest.Request{Method: "POST", Path: "/api/v2/render", Form: form})
	}
	// The packages of the handlers and of the timeline test all refusals and rules.
	send(apitest.File("video", redClip(t))).Sentence(400, "config")
	noFilesLeft(t, s)
	// Clients send a typed config part, unquoted names, parts in any order and parts that nothing refers to.
	send(apitest.Part{Name: "config", Type: "application/json", Text: `{"videoDurationMs":500,"segments":null,"bgmClips":null,
		"separationDirectives":null,"outputKind":null,"quality":null,"stickers":[{}]}`},
		apitest.Part{Name: "video", Path: redClip(t), Unquoted: true, Filename: "clip.txt", Type: "text/plain"},
		apitest.Part{Name: "bgm_0", Path: music(t)}).Expect(200)
}

// A file that is not media, or of the wrong kind, is refused at submit or makes the job FAILED. Both errors are
// sentences.
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
		"text":            []byte("this is not a film\n"),
		"playlist":        []byte("#EXTM3U\n#EXTINF:2,\n" + s.World.Servers()["provider_a"] + "/x.ts\n#EXT-X-ENDLIST\n"),
		"only the header": good[:64],
		"png":             mediatest.FFmpeg(t, "-f", "lavfi", "-i", "color=red:s=64x64", "-frames:v", "1", "-f", "image2pipe", "-c:v", "png", "-"),
		"audio only":      readFile(t, music(t)),
	}
	forms := map[string][]apitest.Part{"music that is none": apitest.RenderForm(t, M{"segments": []M{apitest.Segment("video_0", 0, clipLength)},
		"bgmClips": []M{{"audioFileKey": "bgm_0", "startMs": 0}}},
		apitest.File("video_0", redClip(t)), apitest.Part{Name: "bgm_0", Bytes: []byte("#EXTM3U\nfile://" + secret + "\n")})}
	for name, content := range inputs {
		forms[name] = apitest.RenderForm(t, M{"segments": []M{apitest.Segment("video_0", 0, clipLength)}},
			apitest.Part{Name: "video_0", Bytes: content, Filename: "film.mp4", Type: "video/mp4"})
	}
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			u := submitter()
			res := u.Send(t, apitest.Request{Method: "POST", Path: "/api/v2/render", Form: form})
			if res.Status == 400 {
				res.Sentence(400)
				return
			}
			job := res.Job(200)
			end := u.WaitFinished(t, job)
			want := "source_unreadable"
			if name == "audio only" {
				want = "no_media"
			}
			if end.ErrorCode != want || !strings.Contains(end.Error, " ") || end.Field != "segments[0]" {
				t.Errorf("ended %s with %q (%s, field %q), want %s and a sentence about segments[0]", end.Status, end.Error, end.ErrorCode, end.Field, want)
			}
			for _, bad := range []string{"ffmpeg", "/", "Invalid data", "moov"} {
				if strings.Contains(end.Error, bad) {
					t.Errorf("the sentence contains %q: %s", bad, end.Error)
				}
			}
			u.Send(t, apitest.Request{Path: "/api/v2/render/" + job + "/download"}).Sentence(404)
		})
	}
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
