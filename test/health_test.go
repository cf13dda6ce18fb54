package test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"cutroom/internal/apitest"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	for range 40 { // beyond every rate limit
		var body struct{ Status string }
		s.Do(t, apitest.Request{Path: "/healthz", Valid: true}).Expect(200).JSON(&body)
		if body.Status != "ok" {
			t.Fatalf("status %q, want ok", body.Status)
		}
	}
	s.Do(t, apitest.Request{Path: "/healthz", Token: "nonsense"}).Expect(200)
}

func TestEveryAuthenticatedPathWantsABearer(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	for _, r := range []apitest.Request{
		{Method: "DELETE", Path: "/api/v2/auth/account"},
		{Path: "/api/v2/credits"},
		{Path: "/api/v2/credits/cost?durationMs=1"},
		{Method: "POST", Path: "/api/v2/credits/purchase", Raw: "{}"},
		{Method: "POST", Path: "/api/v2/credits/admin-grant", Raw: "{}"},
		{Method: "POST", Path: "/api/v2/render/inputs", Raw: "{}"},
		{Method: "POST", Path: "/api/v2/render", Raw: "{}"},
		{Method: "POST", Path: "/api/v2/render/v3", Raw: "{}"},
		{Path: "/api/v2/render/rnd-x/status"},
		{Path: "/api/v2/render/rnd-x/download"},
		{Method: "POST", Path: "/api/v2/assets/upload-url", Raw: "{}"},
		{Method: "POST", Path: "/api/v2/assets/complete", Raw: "{}"},
		{Method: "POST", Path: "/api/v2/separate", Raw: "{}"},
		{Path: "/api/v2/separate/sep-x"},
		{Path: "/api/v2/admin/overview"},
		{Path: "/api/v2/admin/stats/daily"},
		{Path: "/api/v2/admin/users"},
		{Path: "/api/v2/admin/stats/external-calls"},
		{Path: "/api/v2/admin/stats/duration-histogram"},
		{Path: "/api/v2/admin/jobs/active"},
		{Path: "/api/v2/admin/stats/signups"},
		{Path: "/api/v2/admin/revenue"},
		{Path: "/api/v2/admin/revenue/daily"},
		{Path: "/api/v2/admin/jobs/status-breakdown"},
		{Path: "/api/v2/admin/users/00000000-0000-4000-8000-000000000000/jobs"},
	} {
		s.Do(t, r).Error(401, "missing_token")
		r.Token = "not.a.token"
		s.Do(t, r).Error(401, "invalid_token")
	}
}

func TestRemovedSurfacesDoNotExist(t *testing.T) {
	t.Parallel()
	u := apitest.Shared(t).SignIn(t)
	for _, path := range []string{"/api/v2/subtitles", "/api/v2/subtitles/x", "/api/v2/autodub", "/api/v2/autodub/x/status",
		"/api/v2/lipsync", "/api/v2/lipsync/x", "/api/v2/chat", "/api/v2/languages",
		"/api/v2/separate/sep-x/mix", "/api/v2/separate/mix/x", "/api/v2/separate/mix/x/download"} {
		for _, method := range []string{"GET", "POST"} {
			u.Send(t, apitest.Request{Method: method, Path: path, Raw: "{}"}).Expect(404)
		}
	}
	// The removed elements of a render are unknown keys now, and those are
	// ignored: the answer is about the missing segments, not about stickers.
	res := u.Send(t, apitest.Request{Method: "POST", Path: "/api/v2/render", Form: apitest.RenderForm(t,
		M{"stickers": "x", "subtitles": 1, "dubClips": true, "audioOverride": "y"})})
	res.Sentence(400, "segments")
}

// preflight asks whether a page at origin may call the API.
func preflight(t *testing.T, s *apitest.Server, origin string) *apitest.Response {
	t.Helper()
	return s.Do(t, apitest.Request{Method: "OPTIONS", Path: "/api/v2/render", Header: http.Header{
		"Origin":                         {origin},
		"Access-Control-Request-Method":  {"POST"},
		"Access-Control-Request-Headers": {"authorization,content-type,idempotency-key"},
	}})
}

func TestCORSWhitelist(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Env("CORS_ALLOWED_ORIGINS", "https://a.example.test, https://b.example.test"))
	for origin, want := range map[string]string{
		"https://a.example.test":      "https://a.example.test",
		"https://b.example.test":      "https://b.example.test",
		"https://c.example.test":      "",
		"https://a.example.test.evil": "",
		"http://a.example.test":       "",
		"null":                        "",
	} {
		if got := preflight(t, s, origin).Header.Get("Access-Control-Allow-Origin"); got != want {
			t.Errorf("preflight from %s: Allow-Origin %q, want %q", origin, got, want)
		}
		res := s.Do(t, apitest.Request{Path: "/healthz", Header: http.Header{"Origin": {origin}}})
		if got := res.Header.Get("Access-Control-Allow-Origin"); got != want {
			t.Errorf("request from %s: Allow-Origin %q, want %q", origin, got, want)
		}
	}
}

func TestAPIDocsOnlyWhenEnabled(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	apitest.Shared(t).Do(t, apitest.Request{Path: "/swagger"}).Expect(404)
	s := apitest.Start(t, apitest.Env("ENABLE_API_DOCS", "true"))
	res := s.Do(t, apitest.Request{Path: "/swagger", Valid: true})
	if res.Status/100 == 3 {
		res = s.Do(t, apitest.Request{Path: res.Header.Get("Location")})
	}
	page := string(res.Expect(200).Body)
	if !strings.HasPrefix(res.Header.Get("Content-Type"), "text/html") {
		t.Errorf("Content-Type %q", res.Header.Get("Content-Type"))
	}
	if m := regexp.MustCompile(`(src|href)\s*=\s*["'](https?:)?//[^"']+`).FindString(page); m != "" {
		t.Errorf("the page loads from another host: %s", m)
	}
	// Every file of the page comes from this binary.
	for _, m := range regexp.MustCompile(`(?:src|href)\s*=\s*["']([^"'#]+\.(?:js|css))["']`).FindAllStringSubmatch(page, -1) {
		path := m[1]
		if !strings.HasPrefix(path, "/") {
			path = "/swagger/" + strings.TrimPrefix(path, "./")
		}
		s.Do(t, apitest.Request{Path: path}).Expect(200)
	}
	for path, kind := range map[string]string{"/swagger/openapi.yaml": "application/yaml", "/swagger/openapi.json": "application/json"} {
		res := s.Do(t, apitest.Request{Path: path}).Expect(200)
		if !strings.HasPrefix(res.Header.Get("Content-Type"), kind) || !strings.Contains(string(res.Body), "/api/v2/render/v3") {
			t.Errorf("%s: %s of %d bytes", path, res.Header.Get("Content-Type"), len(res.Body))
		}
	}
	for _, path := range []string{"/swagger/nope", "/swagger/nope.js", "/swagger/openapi.xml", "/swagger/a/b"} {
		s.Do(t, apitest.Request{Path: path}).Error(404, "Not found")
	}
}
