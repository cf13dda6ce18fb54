// Repeats with an Idempotency-Key: one job and one charge, the first answer, and what counts as the same request.

package test

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"cutroom/internal/testkit/apitest"
)

func withKey(r apitest.Request, key string) apitest.Request {
	r.Header = http.Header{"Idempotency-Key": {key}}
	return r
}

func TestIdempotentSeparation(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	u, other := s.SignIn(t), s.SignIn(t)
	request := apitest.Request{Method: "POST", Path: separatePath, Form: apitest.SeparationForm(mixture(t)), Valid: true}
	var replayed atomic.Int32
	jobOf := func(u *apitest.User, r apitest.Request) string {
		t.Helper()
		res := u.Send(t, r)
		if res.Header.Get("Idempotent-Replayed") == "true" {
			replayed.Add(1)
		}
		return res.Job(202)
	}
	ids := make([]string, 4)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() { ids[i] = jobOf(u, withKey(request, "key-1")) })
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("one key created the jobs %v", ids)
		}
	}
	if b := u.Balance(t); b != 2 {
		t.Errorf("balance %d, want one charge of 3", b)
	}
	if n := replayed.Load(); n != 3 {
		t.Errorf("%d of 4 answers are marked as repeated, want 3", n)
	}
	if id := jobOf(u, withKey(request, " key-1 ")); id != ids[0] {
		t.Error("a key with surrounding space counts as another key")
	}
	if id := jobOf(u, withKey(request, "key-2")); id == ids[0] {
		t.Error("another key returned the first job")
	}
	if id := jobOf(other, withKey(request, "key-1")); id == ids[0] {
		t.Error("another user's key returned the first job")
	}
	changed := withKey(request, "key-1")
	changed.Form = append(changed.Form[:1:1], apitest.Part{Name: "spec", Text: `{"sourceLanguageCode":"ko"}`})
	u.Send(t, changed).Expect(400)
	changed.Form = apitest.SeparationForm(music(t))
	const spent = "Idempotency-Key was already used with a different request"
	u.Send(t, changed).Error(400, spent)
	for _, path := range []string{"/api/v2/render", "/api/v2/render/inputs"} {
		changed.Path, changed.Form = path, apitest.RenderForm(t, M{"videoDurationMs": 500}, apitest.File("video", redClip(t)))
		u.Send(t, changed).Error(400, spent)
	}
	u.WaitReady(t, ids[0])
	if id := jobOf(u, withKey(request, "key-1")); id != ids[0] {
		t.Error("the key did not outlive the job")
	}
	if b := u.Balance(t); b != 1 {
		t.Errorf("balance %d, want 1 after two jobs", b)
	}
	if n := replayed.Load(); n != 5 { // also with spaces around the key, and after the job's end
		t.Errorf("%d answers are marked as repeated, want 5", n)
	}
}

// A repeat gets the first answer, marked as a repeat, even when a request without the key would by now get a different
// one.
func TestRepeatedSubmits(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t, apitest.Bucket(true))
	render, assets := s.SignIn(t), s.SignIn(t)
	film := uploadAsset(t, assets, redClip(t), "mp4", "video/mp4")
	speech := uploadAsset(t, assets, mixture(t), "wav", "audio/wav")
	form := func(ms int) []apitest.Part {
		return apitest.RenderForm(t, M{"videoDurationMs": ms}, apitest.File("video", redClip(t)))
	}
	for _, tt := range []struct {
		user    *apitest.User
		request apitest.Request
		status  int
	}{
		{render, apitest.Request{Path: "/api/v2/render/inputs", Form: []apitest.Part{apitest.File("video", redClip(t))}}, 200},
		{render, apitest.Request{Path: "/api/v2/render", Form: form(500)}, 200},
		{assets, apitest.Request{Path: "/api/v2/render/v3", JSON: ofAsset(film, 500)}, 200},
		{assets, apitest.Request{Path: separateV3Path, JSON: M{"sourceAssetKey": speech}}, 202},
	} {
		r := tt.request
		r.Method, r.Valid = "POST", true
		send := func(key string) *apitest.Response {
			return whenFree(t, func() *apitest.Response { return tt.user.Send(t, withKey(r, key)) }).Expect(tt.status)
		}
		first, other := send(r.Path), send(r.Path+"2")
		for _, res := range []*apitest.Response{first, other} {
			if got := res.Header.Get("Idempotent-Replayed"); got != "" {
				t.Errorf("%s with a new key: Idempotent-Replayed %q", r.Path, got)
			}
		}
		for range 2 {
			again := tt.user.Send(t, withKey(r, r.Path)).Expect(tt.status)
			if got := again.Header.Get("Idempotent-Replayed"); got != "true" || string(again.Body) != string(first.Body) {
				t.Errorf("%s: Idempotent-Replayed %q, %s, want %s", r.Path, got, again.Body, first.Body)
			}
			if state := again.Header.Get("Location"); state != first.Header.Get("Location") {
				t.Errorf("%s: Location %q, want %q", r.Path, state, first.Header.Get("Location"))
			} else if state != "" && tt.user.Get(t, state).Job(200) != first.Job(tt.status) { // inputs have no state
				t.Errorf("%s: %q is the state of another job", r.Path, state)
			}
		}
	}
	changed := apitest.Request{Method: "POST", Path: "/api/v2/render", Form: form(600)}
	render.Send(t, withKey(changed, changed.Path)).Expect(400)
}

// A repeat may be encoded differently: it is the same request if it has the same meaning.
func TestRequestsAreComparedByMeaning(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t, apitest.Bucket(true))
	owner := s.SignIn(t)
	film := uploadAsset(t, owner, redClip(t), "mp4", "video/mp4")
	speech := uploadAsset(t, owner, mixture(t), "wav", "audio/wav")
	raw := func(path string) func(string) apitest.Request {
		return func(body string) apitest.Request {
			return apitest.Request{Method: "POST", Path: path, Raw: strings.NewReplacer("FILM", film, "SPEECH", speech).Replace(body)}
		}
	}
	form := func(path, field string, file apitest.Part) func(string) apitest.Request {
		return func(text string) apitest.Request {
			return apitest.Request{Method: "POST", Path: path, Form: []apitest.Part{{Name: field, Text: text}, file}}
		}
	}
	const segment = `{"sourceAssetKey":"FILM","order":0,"durationMs":500}`
	for _, tt := range []struct {
		name        string
		request     func(string) apitest.Request
		status      int
		first       string
		same, other []string
	}{
		{"render/v3", raw("/api/v2/render/v3"), 200, `{"segments":[` + segment + `]}`, []string{
			"\ufeff" + ` { "outputKind" : "video", "unknown": [1], "quality":"medium", "fadeIn": null, "bgmClips": [], "segments":[{
				"durationMs":5e2,"order":0.0,"\u0073ourceAssetKey":"FILM","volumeScale":1.0,"speedScale":1,"trimStartMs":0,"trimEndMs":0,
				"volumePoints":[],"fit":"contain","focusX":0.5,"transition":null}]}`,
			`{"canvas":{"fit":"cover"},"quality":"high","quality":"medium","canvas":null,"segments":[` + segment + `]}`,
			`{"segments":[` + segment + `],"canvas":{}}`, `{"segments":[` + segment + `],"canvas":{"aspect":"source","maxSide":null,"fit":"contain"}}`,
		}, []string{
			`{"segments":[` + segment + `],"quality":"high"}`, `{"segments":[` + segment + `],"fadeIn":{}}`, `{"segments":[` + segment + `],"canvas":{"aspect":"1:1"}}`,
			`{"segments":[{"sourceAssetKey":"FILM","order":0,"durationMs":500,"volumeScale":0}]}`,
		}},
		{"separate/v3", raw(separateV3Path), 202, `{"sourceAssetKey":"SPEECH"}`, []string{
			`{"again":false,"fileName":"  ","sourceLanguageCode":"AUTO","trimEndMs":0,"trimStartMs":null,"sourceAssetKey":"SPEECH"}`,
		}, []string{`{"sourceAssetKey":"SPEECH","again":true}`, `{"sourceAssetKey":"SPEECH","fileName":"x"}`, `{"sourceAssetKey":"SPEECH","trimEndMs":400}`}},
		{"render", form("/api/v2/render", "config", apitest.File("video", redClip(t))), 200, `{"videoDurationMs":500}`, []string{
			"\ufeff" + `{"quality":"medium","videoDurationMs":500.0,"segments":[]}`,
		}, []string{`{"videoDurationMs":501}`, `{"videoDurationMs":500,"outputKind":"audio"}`}},
		{"separate", form(separatePath, "spec", apitest.SeparationForm(mixture(t))[0]), 202, `{}`, []string{
			"\ufeff" + ` {"sourceLanguageCode":"Auto","numberOfSpeakers":2}`, `{"sourceLanguageCode":null}`,
		}, []string{`{"sourceLanguageCode":"en"}`}},
	} {
		u := s.SignIn(t) // a user may submit ten renders a minute
		first := whenFree(t, func() *apitest.Response { return u.Send(t, withKey(tt.request(tt.first), "k")) }).Job(tt.status)
		for _, body := range tt.same {
			if again := u.Send(t, withKey(tt.request(body), "k")); again.Header.Get("Idempotent-Replayed") != "true" || again.Job(tt.status) != first {
				t.Errorf("%s: %s is not the same request: %s", tt.name, body, again.Body)
			}
		}
		for _, body := range tt.other {
			u.Send(t, withKey(tt.request(body), "k")).Sentence(400, "different request")
		}
	}
	u := s.SignIn(t)
	inputs := func(file apitest.Part, config string) apitest.Request {
		return withKey(apitest.Request{Method: "POST", Path: "/api/v2/render/inputs", Form: []apitest.Part{file, {Name: "config", Text: config}}}, "k")
	}
	first := u.Send(t, inputs(apitest.File("video", redClip(t)), "{}")).Expect(200)
	if again := u.Send(t, inputs(apitest.File("video", redClip(t)), "{ }")).Expect(200); string(again.Body) != string(first.Body) {
		t.Errorf("the same input: %s, %s", first.Body, again.Body)
	}
	u.Send(t, inputs(apitest.File("video", blueClip(t)), "{}")).Sentence(400, "different request")
}

func TestARefusedSubmitDoesNotUseUpItsKey(t *testing.T) {
	t.Parallel()
	u := apitest.Shared(t).SignIn(t)
	spend(t, u, 3)
	request := withKey(apitest.Request{Method: "POST", Path: separatePath, Form: apitest.SeparationForm(mixture(t))}, "poor")
	u.Send(t, request).Error(402, "insufficient_credits")
	u.Buy(t, "credits.10")
	u.Send(t, request).Expect(202)
}
