package httpapi_test

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// fuzzed returns the harness of a fuzz target.
func fuzzed(f *testing.F) *harness {
	f.Helper()
	if testing.Short() {
		f.Skip("starts the whole service")
	}
	return onSQLite(f)
}

// send sends a request for one call of a fuzz target. No request may cause a 5xx.
func (r *harness) send(t *testing.T, q request) *httptest.ResponseRecorder {
	t.Helper()
	w := r.do(q)
	if w.Code >= 500 {
		t.Fatalf("status %d %s", w.Code, w.Body)
	}
	return w
}

func FuzzBearer(f *testing.F) {
	r := fuzzed(f)
	token := r.signIn().token
	for _, s := range []string{"", "Bearer", "Bearer ", "Bearer x.y.z", "bearer eyJhbGciOiJub25lIn0.e30.", "Basic eDp5", "Bearer " + token, "Bearer\t" + token, "Bearer \x00\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		r.t = t
		w := r.send(t, request{method: "GET", target: "/api/v2/credits", header: map[string]string{"Authorization": value}})
		if w.Code == 200 && !strings.Contains(value, token) {
			t.Fatalf("%q is let in", value)
		}
		if w.Code != 200 && w.Code != 401 {
			t.Fatalf("status %d", w.Code)
		}
	})
}

// No JSON body signs in, is paid out or is rendered, because the fuzzer knows no token, receipt or asset.
func FuzzJSON(f *testing.F) {
	r := fuzzed(f)
	key := "assets/" + strings.Repeat("a", 64) + ".mp4"
	const purchase = "/api/v2/credits/purchase" // limits the receipts that it refused
	endpoints := []string{"/api/v2/auth/provider_a", "/api/v2/auth/provider_b", purchase, "/api/v2/render/v3"}
	for endpoint, seeds := range map[byte][]string{
		1: {"", "{}", `{"idToken":"x"}`, `{"idToken":"a.b.c","fullName":"\u0000"}`, `{"idToken":"eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.e30.AA"}`, `{"idToken":1}`, `[`, "{\"idToken\":\"\xff\"}"},
		2: {`{"platform":"platform_a","transactionId":"t","receipt":"r","productId":"credits.10"}`, `{"platform":"platform_b","transactionId":"\u0000","receipt":"r","productId":"credits.10"}`,
			`{"platform":" PLATFORM_B ","transactionId":"..","receipt":"%00","productId":"credits.50"}`, `{"platform":{}}`},
		3: {`{"segments":[]}`, `{"segments":[{"sourceAssetKey":"` + key + `","order":0,"durationMs":1}]}`,
			`{"segments":[{"sourceAssetKey":"` + key + `","order":9223372036854775807,"durationMs":9223372036854775807,"trimStartMs":9223372036854775807,"speedScale":0.1,"volumeScale":1e-300}],
		"bgmClips":[{"audioAssetKey":"` + key + `","startMs":9223372036854775807,"speed":10}],"separationDirectives":[{"id":"\u0000","rangeStartMs":0,"rangeEndMs":9223372036854775807,
		"selections":[{"stemId":"x","audioUrl":"/api/v2/separate/sep-x/stem/x?token=1.x","volume":null}]}],"outputKind":"audio","quality":"low"}`, `{"segments":null,"segments":[null]}`},
	} {
		for _, seed := range seeds {
			f.Add(endpoint, seed)
		}
	}
	f.Fuzz(func(t *testing.T, endpoint byte, body string) {
		r.t = t
		target := endpoints[int(endpoint)%len(endpoints)]
		w := r.send(t, request{method: "POST", target: target, body: body, user: r.submitter()})
		if w.Code == 200 || w.Code == 429 && target != purchase {
			t.Fatalf("%s: %d to %q", target, w.Code, body)
		}
	})
}

func FuzzForm(f *testing.F) {
	r := fuzzed(f)
	head := func(disposition string) string {
		return "--b\r\nContent-Disposition: " + disposition + "\r\n\r\n"
	}
	for _, s := range []string{"", "--b--\r\n", head(`form-data; name="config"`) + "{}\r\n--b--\r\n", head(`form-data; name=spec`) + "{}\r\n" + head(`form-data; name=file; filename=видео.m4a`) + "RIFF\r\n--b--\r\n",
		head(`form-data; name="video"`) + "\x00\r\n" + head(`form-data; name="config"`) + `{"videoDurationMs":5}` + "\r\n--b--\r\n",
		head(`form-data; name="inputId"`) + "\x00\r\n" + head(`form-data; name="config"`) + `{"videoDurationMs":5}` + "\r\n--b--", "--b\r\n\r\n--b--", "--b\nContent-Disposition: form-data; name=\"a\\\"b\"\n\nx\n--b--\n"} {
		for endpoint := range byte(3) {
			f.Add(endpoint, "multipart/form-data; boundary=b", s)
		}
	}
	for _, s := range []string{"", "multipart/form-data", `multipart/form-data; boundary="\""`, "multipart/form-data; boundary*=utf-8''%00", "multipart/form-data;boundary=" + strings.Repeat("b", 500)} {
		f.Add(byte(1), s, head("form-data; name=config")+"{}\r\n--b--")
	}
	f.Fuzz(func(t *testing.T, endpoint byte, contentType, body string) {
		r.t = t
		target := []string{"/api/v2/separate", "/api/v2/render", "/api/v2/render/inputs"}[endpoint%3]
		w := r.send(t, request{method: "POST", target: target, body: body, user: r.submitter(), header: map[string]string{"Content-Type": contentType}})
		if w.Code == 429 {
			t.Fatal("rate limited: the target does not test what it should")
		}
	})
}

func FuzzPath(f *testing.F) {
	if testing.Short() {
		f.Skip("starts the whole service")
	}
	r := newHarness(f, harnessOptions{env: map[string]string{"ENABLE_TESTDATA_MOCK": "true", "ADMIN_SLUG": "back_office"}})
	token := r.signIn().token
	for _, s := range []string{"/", "/healthz", "/api/v2/separate/x", "/api/v2/render/%00/status", "/api/v2/separate/x/stem/y?token=1.x", "/api/v2/credits/cost?durationMs=5", "/api/v2/testdata/separation/0-5/voice",
		"/back_office/../x", "/api/v2/admin/users?q=%00&limit=1", "//", "/swagger/%2e%2e/"} {
		for _, method := range []string{"GET", "HEAD", "DELETE", "OPTIONS"} {
			f.Add(method, s)
		}
	}
	f.Fuzz(func(t *testing.T, method, target string) {
		if !strings.HasPrefix(target, "/") || strings.ContainsAny(target, " \t\r\n") || method == "" || strings.ContainsAny(method, " \t\r\n\x00") || strings.HasPrefix(target, "/api/v2/auth/account") {
			t.Skip("no request line")
		}
		req := httptest.NewRequest("GET", "http://api.example/", nil)
		if retarget(req, target) != nil {
			t.Skip("refused by net/http")
		}
		req.Method = method
		req.Header.Set("Authorization", "Bearer "+token)
		req.RemoteAddr = freshAddress()
		w := httptest.NewRecorder()
		r.handler.ServeHTTP(w, req)
		if w.Code >= 500 {
			t.Fatalf("%s %q: %d %s", method, target, w.Code, w.Body)
		}
	})
}
