package test

import (
	"net/http"
	"testing"

	"cutroom/internal/testkit/apitest"
)

var strict = http.Header{"Prefer": {"handling=strict"}}

// With Prefer: handling=strict, a misspelt field is an error. Otherwise it is ignored.
func TestStrictRequests(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	u := apitest.Shared(t).SignIn(t, apitest.Credits(1))
	config := func(change M) []apitest.Part {
		segment := apitest.With(M{"sourceFileKey": "video_0", "order": 0, "durationMs": 2000, "trimEndMs": 300}, change)
		return apitest.RenderForm(t, M{"segments": []M{segment}}, apitest.File("video_0", redClip(t)))
	}
	send := func(q apitest.Request) *apitest.Response {
		t.Helper()
		q.Method = "POST"
		return u.Send(t, q)
	}
	for name, tt := range map[string]struct {
		q    apitest.Request
		path string
	}{
		"JSON body":   {apitest.Request{Path: "/api/v2/auth/provider_a", JSON: M{"idToken": "x", "extra": 1}}, "extra"},
		"config":      {apitest.Request{Path: "/api/v2/render", Form: config(M{"volumScale": 2})}, "segments[0].volumScale"},
		"spec":        {apitest.Request{Path: separatePath, Form: []apitest.Part{apitest.File("file", mixture(t)), {Name: "spec", Text: `{"language":"en"}`}}}, "spec.language"},
		"field of v3": {apitest.Request{Path: "/api/v2/render", Form: config(M{"sourceAssetKey": "x"})}, "segments[0].sourceAssetKey"},
	} {
		tt.q.Header = strict
		res := send(tt.q)
		res.Sentence(400, tt.path+" is not a known field")
		if got := res.Header.Get("Preference-Applied"); got != "handling=strict" {
			t.Errorf("%s: Preference-Applied %q", name, got)
		}
	}
	// Reserved names are ignored in both cases.
	job := send(apitest.Request{Path: "/api/v2/render", Form: config(M{"type": "image", "width": 5}), Header: strict}).Job(200)
	loose := send(apitest.Request{Path: "/api/v2/render", Form: config(M{"volumScale": 2})})
	loose.Job(200)
	if got := loose.Header.Get("Preference-Applied"); got != "" {
		t.Errorf("Preference-Applied %q without a preference", got)
	}
	u.WaitRendered(t, job)
	res := u.Send(t, apitest.Request{Path: "/api/v2/render/" + job + "/status", Header: http.Header{"Prefer": {"wait=5, handling=strict"}}})
	if got := res.Expect(200).Header.Get("Preference-Applied"); got != "handling=strict, wait=5" {
		t.Errorf("Preference-Applied with handling and wait: %q", got)
	}
}
