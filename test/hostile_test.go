package test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"cutroom/internal/apitest"
	"cutroom/internal/sandbox/identity"
)

// hostileStrings break databases, logs, headers or paths that are careless.
var hostileStrings = []string{
	"\x00", "a\x00b", "'", "' OR '1'='1", `"; DROP TABLE users; --`, `\`, "%", "%s%n", "${jndi:x}", "<script>alert(1)</script>",
	"../../../../etc/passwd", "/etc/passwd", "a\r\nX-Injected: yes", "\u202e\u2066", "👩‍👩‍👧‍👦", "\ufeff", "\ud7ff\ue000",
	strings.Repeat("x", 5000), strings.Repeat("9", 400), "NaN", "-0", "1e309", "null", "{}", "[]",
}

// No string that a client may put anywhere makes the service answer 500; the
// harness fails on each 500 and on each body that is not as described.
func TestHostileStringsInBodies(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	admin := s.Admin(t)
	for _, h := range hostileStrings {
		u := s.SignIn(t) // whose receipts are refused is limited
		for _, field := range []string{"platform", "transactionId", "receipt", "productId"} {
			body := M{"platform": "platform_a", "transactionId": "t", "receipt": "r", "productId": "credits.10"}
			body[field] = h
			u.Send(t, apitest.Request{Method: "POST", Path: purchasePath, JSON: body}).Expect(400)
			body["platform"] = "platform_b"
			body[field] = h
			u.Send(t, apitest.Request{Method: "POST", Path: purchasePath, JSON: body}).Expect(400)
		}
		admin.Send(t, apitest.Request{Method: "POST", Path: grantPath, JSON: M{"productId": h}}).Error(400, "unknown_product")
		if strings.TrimSpace(h) == "" || h == "\ufeff" {
			continue
		}
		login(t, s, "provider_a", M{"idToken": h}).Error(401, "invalid_id_token")
		login(t, s, "provider_b", M{"idToken": h, "fullName": h}).Error(401, "invalid_id_token")
	}
}

// What the providers say of a person is no more trustworthy than what the
// person says: names and addresses may hold anything.
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

func TestHostileStringsInPathsAndQueries(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	u, admin := s.SignIn(t), s.Admin(t)
	for _, raw := range append(hostileStrings, "\xff", "\xc3\x28", "%zz") {
		h := escape(raw)
		for _, path := range []string{"/api/v2/separate/" + h, "/api/v2/render/" + h + "/status", "/api/v2/render/" + h + "/download"} {
			for _, prefix := range []string{"", "sep-", "rnd-"} {
				p := strings.Replace(path, h, prefix+h, 1)
				if res := u.Send(t, apitest.Request{Path: p}); res.Status != 404 && res.Status/100 != 3 {
					t.Errorf("%.80s: %d, want 404", p, res.Status)
				}
			}
		}
		res := s.Do(t, apitest.Request{Path: "/api/v2/separate/sep-x/stem/voice_all?token=" + h})
		if res.Status != 403 {
			t.Errorf("stem token %.40q: %d, want 403", raw, res.Status)
		}
		if res := s.Do(t, apitest.Request{Path: "/api/v2/separate/sep-" + h + "/stem/" + h + "?token=1.x"}); res.Status != 403 && res.Status != 404 && res.Status/100 != 3 {
			t.Errorf("stem of %.40q: %d", raw, res.Status)
		}
		if raw != "-0" { // which is a number
			u.Send(t, apitest.Request{Path: "/api/v2/credits/cost?durationMs=" + h}).Expect(400)
		}
		admin.Send(t, apitest.Request{Path: adminPath + "users?q=" + h}).Expect(200)
		admin.Send(t, apitest.Request{Path: adminPath + "users?limit=" + h}).Error(400, "invalid_limit")
		admin.Send(t, apitest.Request{Path: adminPath + "stats/daily?from=" + h}).Error(400, "invalid_from_date")
		if res := admin.Send(t, apitest.Request{Path: adminPath + "users/" + h + "/jobs"}); res.Status != 400 && res.Status != 404 && res.Status/100 != 3 {
			t.Errorf("jobs of user %.40q: %d", raw, res.Status)
		}
	}
}

// escape writes every byte of s as %XX, so that any of them can be sent.
func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02X", s[i])
	}
	return b.String()
}

func TestHostileStringsInForms(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	submitter := newSubmitter(t, s)
	poor := s.SignIn(t)
	used := 0
	for _, h := range hostileStrings {
		text, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		quoted := string(text)
		for _, config := range []string{
			`{"segments":[{"sourceFileKey":` + quoted + `,"order":0,"durationMs":5}]}`,
			`{"segments":[{"sourceFileKey":"video","order":0,"durationMs":5}],"separationDirectives":[{"id":` + quoted +
				`,"rangeStartMs":0,"rangeEndMs":5,"selections":[{"stemId":` + quoted + `,"audioUrl":` + quoted + `}]}]}`,
			`{"videoDurationMs":5,"quality":` + quoted + `}`,
		} {
			form := apitest.RenderForm(t, config, apitest.Part{Name: "video", Bytes: []byte("not a film")})
			submitter().Send(t, apitest.Request{Method: "POST", Path: "/api/v2/render", Form: form}).Expect(400)
		}
		form := apitest.RenderForm(t, M{"videoDurationMs": 5}, apitest.Part{Name: "inputId", Text: h})
		submitter().Send(t, apitest.Request{Method: "POST", Path: "/api/v2/render", Form: form}).Expect(400)
		if used++; used%19 == 0 {
			poor = s.SignIn(t)
		}
		// The language and the file name are kept; the file itself is no audio.
		submit(t, poor, apitest.Part{Name: "file", Bytes: []byte("not audio"), Filename: strings.NewReplacer("\r", "", "\n", "", "\x00", "").Replace(h)},
			apitest.Part{Name: "spec", Text: `{"sourceLanguageCode":` + quoted + `}`}).Expect(400)
	}
}
