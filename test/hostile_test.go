package test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"cutroom/internal/sandbox/identity"
	"cutroom/internal/testkit/apitest"
)

// hostileStrings break careless databases, logs, headers and paths.
var hostileStrings = []string{
	"\x00", "a\x00b", "'", "' OR '1'='1", `"; DROP TABLE users; --`, `\`, "%", "%s%n", "${jndi:x}", "<script>alert(1)</script>",
	"../../../../etc/passwd", "/etc/passwd", "a\r\nX-Injected: yes", "\u202e\u2066", "👩‍👩‍👧‍👦", "\ufeff", "\ud7ff\ue000",
	strings.Repeat("x", 5000), strings.Repeat("9", 400), "NaN", "-0", "1e309", "null", "{}", "[]",
}

// Names and e-mail addresses from the identity providers may contain anything. The handlers' tests cover other input.
func TestHostileStringsFromProviders(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	for i, h := range hostileStrings {
		if len(h) > 1000 {
			continue // the token would not fit into provider_a's query
		}
		subject := fmt.Sprintf("hostile-%d", i)
		a := s.World.MintA(t, identity.Claims{Subject: subject, Email: "h@example.test", Name: h, Picture: h})
		login(t, s, "provider_a", M{"idToken": a}).Expect(200)
		b := s.World.MintB(t, identity.Claims{Subject: subject, Email: "h@example.test"})
		login(t, s, "provider_b", M{"idToken": b, "fullName": h}).Expect(200)
		for name, token := range map[string]string{
			"provider_a": s.World.MintA(t, identity.Claims{Subject: subject + h, Email: h + "@example.test"}),
			"provider_b": s.World.MintB(t, identity.Claims{Subject: subject + h, Email: h + "@example.test"}),
		} {
			if res := login(t, s, name, M{"idToken": token}); res.Status != 200 && res.Status != 401 {
				t.Errorf("%s with subject and e-mail of %.20q: %d", name, h, res.Status)
			}
		}
	}
}

// Every operation refuses a query that cannot be parsed, and treats a path with a NUL as unknown, as openapi.yaml
// describes.
func TestHostileAddresses(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	doc, err := openapi3.NewLoader().LoadFromFile("../internal/api/httpapi/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s := apitest.Start(t, apitest.Bucket(true), apitest.Env("ENABLE_TESTDATA_MOCK", "true"))
	token := s.Admin(t).Token
	for path, item := range doc.Paths.Map() {
		if strings.HasPrefix(path, "/swagger") {
			continue // disabled
		}
		for method := range item.Operations() {
			target := regexp.MustCompile(`{.*?}`).ReplaceAllString(path, "x")
			if res := s.Do(t, apitest.Request{Method: method, Path: target + "?token=x&x=%zz", Token: token}); method != http.MethodHead {
				res.Error(400, "bad_request")
			}
			if nul := regexp.MustCompile(`{.*?}`).ReplaceAllString(path, "%00"); nul != path {
				s.Do(t, apitest.Request{Method: method, Path: nul, Token: token}).Expect(404)
			}
		}
	}
}
