package test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/browsertest"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	for range 40 { // more than any rate limit allows
		var body struct{ Status string }
		s.Do(t, apitest.Request{Path: "/healthz", Valid: true}).Expect(200).JSON(&body)
		if body.Status != "ok" {
			t.Fatalf("status %q, want ok", body.Status)
		}
	}
	s.Do(t, apitest.Request{Path: "/healthz", Token: "nonsense"}).Expect(200)
	s.Do(t, apitest.Request{Method: "HEAD", Path: "/healthz"}).Expect(200)
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
	res.Expect(200)
	// The admin app has the same origin, so a script on this page could use its token.
	if policy := res.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") ||
		strings.Contains(policy, "script-src 'unsafe") || !strings.Contains(policy, "frame-ancestors 'none'") || res.Header.Get("X-Frame-Options") != "DENY" {
		t.Errorf("Content-Security-Policy %q, X-Frame-Options %q", policy, res.Header.Get("X-Frame-Options"))
	}
	if !strings.HasPrefix(res.Header.Get("Content-Type"), "text/html") {
		t.Errorf("Content-Type %q", res.Header.Get("Content-Type"))
	}
	var documents []string
	for path, kind := range map[string]string{"/swagger/openapi.yaml": "application/yaml", "/swagger/openapi.json": "application/json"} {
		res := s.Do(t, apitest.Request{Path: path}).Expect(200)
		document, err := openapi3.NewLoader().LoadFromData(res.Body)
		if err != nil || !strings.HasPrefix(res.Header.Get("Content-Type"), kind) || json.Valid(res.Body) != (kind == "application/json") {
			t.Fatalf("%s: %s of %d bytes: %v", path, res.Header.Get("Content-Type"), len(res.Body), err)
		}
		text, err := document.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, string(text))
	}
	if documents[0] != documents[1] || !strings.Contains(documents[0], "/api/v2/render/v3") {
		t.Error("the YAML and JSON documents differ")
	}
	for _, path := range []string{"/swagger/nope", "/swagger/nope.js", "/swagger/openapi.xml", "/swagger/a/b"} {
		s.Do(t, apitest.Request{Path: path}).Error(404, "Not found")
	}
	// The page works under this policy: the binary serves all that it loads.
	browser := browsertest.Open(t)
	browser.Go(s.URL + "/swagger/")
	browser.See("/api/v2/render/v3")
	browser.Quiet("the page")
}
