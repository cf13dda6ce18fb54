// Malformed requests, each with its exact answer: the harness of these tests, and the endpoints with JSON bodies,
// tokens, paths and methods.

package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"cutroom/internal/domain/account"
	"cutroom/internal/testkit/apitest"
)

// Bodies with which several endpoints answer.
const (
	badRequest    = `{"error":"bad_request","detail":"the body is not a JSON object"}`
	encoded       = `{"error":"The body has a Content-Encoding other than identity: send it uncompressed"}`
	noBoundary    = `{"error":"The Content-Type multipart/form-data has no usable boundary: let the HTTP library set it, with its boundary"}`
	badForm       = `{"error":"bad_request","detail":"a multipart/form-data body is required"}`
	brokenForm    = `{"error":"bad_request","detail":"the multipart body is malformed or incomplete"}`
	noToken       = `{"error":"missing_token"}`
	badToken      = `{"error":"invalid_token"}`
	deleted       = `{"error":"account_deleted"}`
	badKey        = `{"error":"Idempotency-Key must be at most 255 printable ASCII characters"}`
	tooLarge      = `{"error":"The request body is too large"}`
	noRender      = `{"error":"render job not found"}`
	noSeparation  = `{"error":"separation job not found"}`
	notFound      = `{"error":"Not found"}`
	wrongMethod   = `{"error":"Method not allowed"}`
	adminRequired = `{"error":"admin_required"}`
)

// malformed is one request and its exact answer. Each is sent by a new user, unless it has a token or must have none.
type malformed struct {
	name   string
	q      request
	anon   bool
	status int
	body   string
}

func checkMalformed(t *testing.T, r *harness, cases []malformed) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.q.user == "" && !c.anon {
				c.q.user = r.signIn().token
			}
			c.body = withField(c.body)
			w := r.do(c.q)
			if w.Code != c.status || strings.TrimSpace(w.Body.String()) != c.body {
				t.Errorf("%s %.120s\n  got  %d %s  want %d %s", c.q.method, c.q.target, w.Code, w.Body, c.status, c.body)
			}
			if got := w.Header().Get("Content-Type"); got != "application/json; charset=utf-8" {
				t.Errorf("content type %q", got)
			}
			if wants := c.status == http.StatusUnauthorized; wants != (w.Header().Get("WWW-Authenticate") == "Bearer") {
				t.Errorf("WWW-Authenticate: %q", w.Header().Get("WWW-Authenticate"))
			}
			if w.Header().Get("X-Request-Id") == "" || w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("headers %v", w.Header())
			}
		})
	}
}

func get(target string) request        { return request{method: "GET", target: target} }
func post(target, body string) request { return request{method: "POST", target: target, body: body} }

// withField adds the member that an error body must have if it is about a field.
func withField(body string) string {
	var fields struct{ Error string }
	if json.Unmarshal([]byte(body), &fields) != nil || apitest.FieldOf(fields.Error) == "" {
		return body
	}
	path, _ := json.Marshal(apitest.FieldOf(fields.Error))
	return strings.TrimSuffix(body, "}") + `,"field":` + string(path) + "}"
}

// jsonRefusals are the answers of every JSON endpoint to a body that is not JSON.
func jsonRefusals(target string, anon bool) []malformed {
	var out []malformed
	for name, body := range map[string]string{
		"nothing": "", "space": " \n\t", "null": "null", "array": "[]", "text": `"x"`, "number": "1", "cut off": `{"a":`,
		"two objects": "{}{}", "trailing comma": `{"a":1,}`, "form": "a=b&c=d", "NUL": "\x00", "control character": "{\"a\":\"\x01\"}",
		"deeper than any parser goes": strings.Repeat(`{"a":`, 20000) + "1" + strings.Repeat("}", 20000),
		"deep arrays":                 `{"a":` + strings.Repeat("[", 100000),
		"two byte order marks":        "\ufeff\ufeff{}", "single quotes": `{'a':1}`, "comment": `{/* */}`, "NaN": `{"a":NaN}`,
	} {
		out = append(out, malformed{name: name, q: post(target, body), anon: anon, status: 400, body: badRequest})
	}
	zipped := post(target, "{}")
	zipped.header = map[string]string{"Content-Encoding": "gzip"}
	out = append(out, malformed{name: "encoded", q: zipped, anon: anon, status: 415, body: encoded})
	long := post(target, `{"a":"`+strings.Repeat("x", 1<<20-7)+`"}`)
	return append(out, malformed{name: "one byte over the cap", q: long, anon: anon, status: 413, body: tooLarge})
}

func TestMalformedSignIns(t *testing.T) {
	r := onSQLite(t)
	for _, target := range []string{"/api/v2/auth/provider_a", "/api/v2/auth/provider_b"} {
		cases := jsonRefusals(target, true)
		for name, body := range map[string]string{"empty object": `{}`, "byte order mark": "\ufeff{}", "null token": `{"idToken":null}`, "blank token": `{"idToken":"  \t"}`,
			"other keys": `{"token":"x","IdToken":"x","idtoken":{}}`, "last of two keys": `{"idToken":"x","idToken":""}`} {
			cases = append(cases, malformed{name: name, q: post(target, body), anon: true, status: 400, body: `{"error":"missing_id_token"}`})
		}
		for name, body := range map[string]string{"no token at all": `{"idToken":"x"}`, "NUL": `{"idToken":"a\u0000b"}`, "lone surrogate": `{"idToken":"\ud800"}`,
			"not UTF-8": "{\"idToken\":\"\xff\xfe\"}", "long": `{"idToken":"` + strings.Repeat("a", 1<<19) + `"}`, "dots": `{"idToken":"` + strings.Repeat(".", 5000) + `"}`,
			"alg none": `{"idToken":"eyJhbGciOiJub25lIn0.e30."}`, "within the cap": `{"idToken":"x","pad":"` + strings.Repeat("x", 1<<20-100) + `"}`} {
			cases = append(cases, malformed{name: name, q: post(target, body), anon: true, status: 401, body: `{"error":"invalid_id_token"}`})
		}
		checkMalformed(t, r, cases)
	}
}

func TestMalformedPurchases(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		const target = "/api/v2/credits/purchase"
		cases := jsonRefusals(target, false)
		add := func(name, body, want string) {
			cases = append(cases, malformed{name: name, q: post(target, body), status: 400, body: want})
		}
		add("empty", `{}`, `{"error":"invalid_platform"}`)
		add("unknown platform", `{"platform":"platform_c"}`, `{"error":"invalid_platform"}`)
		add("NUL platform", `{"platform":"platform_a\u0000"}`, `{"error":"invalid_platform"}`)
		add("no receipt", `{"platform":"platform_a","transactionId":"t","productId":"nope"}`, `{"error":"missing_receipt"}`)
		add("blank transaction", `{"platform":"platform_b","transactionId":" \u00a0","receipt":"r"}`, `{"error":"missing_receipt"}`)
		add("platform in capitals", `{"platform":" PLATFORM_A ","transactionId":"t","receipt":" "}`, `{"error":"missing_receipt"}`)
		add("no product", `{"platform":"platform_a","transactionId":"t","receipt":"r"}`, `{"error":"unknown_product"}`)
		add("NUL product", `{"platform":"platform_a","transactionId":"t","receipt":"r","productId":"credits.10\u0000"}`, `{"error":"unknown_product"}`)
		for name, id := range map[string]string{"plain": "t", "NUL": `a\u0000b`, "slashes": "../../x", "dot dot": "..", "query": "t?x=y#z", "newline": `a\r\nX: y`, "not UTF-8": "\xff",
			"long": strings.Repeat("9", 100000)} {
			for _, platform := range []string{"platform_a", "platform_b"} {
				add(name+" at "+platform, `{"platform":"`+platform+`","transactionId":"`+id+`","receipt":"`+id+`","productId":"credits.10"}`, `{"error":"receipt_invalid","detail":"unverified"}`)
			}
		}
		cases = append(cases, malformed{name: "anonymous beyond the cap", q: post(target, strings.Repeat("x", 2<<20)), anon: true, status: 401, body: noToken})
		checkMalformed(t, r, cases)
	})
	t.Run("unconfigured", func(t *testing.T) {
		r := newHarness(t, harnessOptions{env: map[string]string{"IAP_PLATFORM_A_PACKAGE_NAME": "", "IAP_PLATFORM_B_KEY_ID": ""}})
		for _, platform := range []string{"platform_a", "platform_b"} {
			var cases []malformed
			for product, want := range map[string]string{"credits.10": `{"error":"iap_unconfigured"}`, "x": `{"error":"unknown_product"}`} {
				q := post("/api/v2/credits/purchase", `{"platform":"`+platform+`","transactionId":"t","receipt":"r","productId":"`+product+`"}`)
				cases = append(cases, malformed{name: platform + " " + product, q: q, status: 400, body: want})
			}
			checkMalformed(t, r, cases)
		}
	})
}

func TestMalformedAdminGrants(t *testing.T) {
	r := onSQLite(t)
	const target = "/api/v2/credits/admin-grant"
	cases := jsonRefusals(target, false)
	for name, body := range map[string]string{"empty": `{}`, "null": `{"productId":null}`, "unknown": `{"productId":"x"}`, "NUL": `{"productId":"\u0000"}`, "list": `{"productIds":["credits.10"]}`} {
		cases = append(cases, malformed{name: "product " + name, q: post(target, body), status: 400, body: `{"error":"unknown_product"}`})
	}
	admin := r.admin()
	for i := range cases {
		cases[i].q.user = admin
	}
	gone := post(target, `{"productId":"credits.10"}`)
	gone.user = r.token("0190b6f2-7e0a-7cc1-8f5e-0123456789ab", account.RoleAdmin)
	checkMalformed(t, r, append(cases, malformed{name: "admin who is gone", q: gone, status: 403, body: adminRequired}))
}

func TestMalformedCosts(t *testing.T) {
	r := onSQLite(t)
	var cases []malformed
	for want, queries := range map[string][]string{
		`{"error":"missing_duration_ms"}`: {"", "?", "?durationMs", "?durationMs=", "?durationMs=x", "?durationMs=1.5", "?durationMs=1e3", "?durationMs=0x10", "?durationMs=+5",
			"?durationMs=9223372036854775808", "?durationMs=-9223372036854775809", "?durationMs=%00", "?durationMs=1%00", "?durationMs=%ff", "?durationMs=1_000", "?durationms=1",
			"?durationMs=%D9%A1", "?durationMs=NaN", "?durationMs=1&durationMs=2", "?durationMs=" + strings.Repeat("9", 5000)},
		`{"error":"bad_request","detail":"the query cannot be parsed"}`: {"?durationMs=%zz", "?durationMs=1;durationMs=2", "?durationMs=1&x=%"},
		`{"error":"duration_ms_negative"}`:                              {"?durationMs=-1", "?durationMs=-9223372036854775808"},
	} {
		for _, query := range queries {
			cases = append(cases, malformed{name: query, q: get("/api/v2/credits/cost" + query), status: 400, body: want})
		}
	}
	checkMalformed(t, r, cases)
}

func TestMalformedTokens(t *testing.T) {
	r := onSQLite(t)
	good := r.signIn().token
	parts := strings.Split(good, ".")
	for value, want := range map[string]string{
		"": noToken, " ": noToken, "Bearer": badToken, "Bearer ": badToken, "Bearer x": badToken, "Basic " + good: badToken, good: badToken,
		"Bearer " + good + "x": badToken, "Bearer " + parts[0] + "." + parts[1] + ".": badToken, "Bearer eyJhbGciOiJub25lIn0." + parts[1] + ".": badToken,
		"Bearer " + parts[0] + ".e30." + parts[2]: badToken, "Bearer \x00": badToken, "Bearer \xff\xfe": badToken, "Bearer " + strings.Repeat("a", 60000): badToken,
		"Bearer " + strings.Repeat(".", 1000): badToken, "Bearer " + good + " " + good: badToken, "Bearer " + good + "," + good: badToken,
	} {
		w := r.do(request{method: "GET", target: "/api/v2/credits", header: map[string]string{"Authorization": value}})
		if w.Code != http.StatusUnauthorized || strings.TrimSpace(w.Body.String()) != want {
			t.Errorf("%.60q: %d %s, want 401 %s", value, w.Code, w.Body, want)
		}
	}
	for _, value := range []string{"Bearer " + good, "bearer " + good, "BEARER   " + good + " "} {
		if w := r.do(request{method: "GET", target: "/api/v2/credits", header: map[string]string{"Authorization": value}}); w.Code != http.StatusOK {
			t.Errorf("%.12q: %d", value, w.Code)
		}
	}
}

// Every operation described with a bearer token requires one.
func TestEveryOperationWantsItsToken(t *testing.T) {
	r := onSQLite(t)
	doc, asked := loadOpenAPI(t), 0
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			security := doc.Security
			if op.Security != nil {
				security = *op.Security
			}
			if method == http.MethodHead || len(security) == 0 || security[0]["bearerAuth"] == nil {
				continue
			}
			asked++
			for token, want := range map[string]string{"": noToken, "not.a.token": badToken} {
				w := r.do(request{method: method, target: strings.NewReplacer("{", "", "}", "").Replace(path), user: token, body: "{}"})
				if w.Code != http.StatusUnauthorized || strings.TrimSpace(w.Body.String()) != want {
					t.Errorf("%s %s with %q: %d %s, want 401 %s", method, path, token, w.Code, w.Body, want)
				}
			}
		}
	}
	if asked < 30 {
		t.Errorf("only %d operations want a token", asked)
	}
}

func TestMalformedPathsAndMethods(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		var cases []malformed
		for _, id := range []string{"x", "rnd-", "sep-", "%00", "rnd-%00", "%ff", "%C3%28", "a%2Fb", "..%2F..", "%2e%2e", "'%20OR%201=1", strings.Repeat("a", 5000), "rnd-0190b6f2-7e0a-7cc1-8f5e-0123456789ab"} {
			render, separation := noRender, noSeparation
			if strings.Contains(id, "%00") || strings.Contains(id, "%ff") || strings.Contains(id, "%C3") {
				render, separation = notFound, notFound
			}
			if id == "%2e%2e" || id == "..%2F.." { // would be another path
				render, separation = notFound, notFound
			}
			cases = append(cases,
				malformed{name: "render status " + id, q: get("/api/v2/render/" + id + "/status"), status: 404, body: render},
				malformed{name: "render download " + id, q: get("/api/v2/render/" + id + "/download"), status: 404, body: render},
				malformed{name: "separation " + id, q: get("/api/v2/separate/" + id), status: 404, body: separation},
			)
		}
		for _, path := range []string{"/", "/nope", "/nope?x=%zz", "/api", "/api/v2", "/api/v2/", "/api/v1/credits", "/api/v2/credits/", "//api/v2/credits", "/api//v2/credits", "/api/v2/./credits",
			"/api/v2/x/../credits", "/API/V2/credits", "/api/v2/chat", "/api/v2/languages", "/api/v2/subtitles", "/api/v2/autodub/x", "/api/v2/lipsync",
			"/api/v2/separate/mix/x/download", "/api/v2/testdata/separation/list", "/api/v2/testdata/separation/0-30/voice_all", "/swagger/x", "/metrics", "/readyz", "/debug/pprof/", "/%00", "/api/v2/%ff"} {
			for _, method := range []string{"GET", "POST", "DELETE", "BREW"} {
				if strings.HasPrefix(path, "/swagger") && method != "GET" {
					continue // everything below it only accepts GET
				}
				cases = append(cases, malformed{name: method + " " + path, q: request{method: method, target: path}, status: 404, body: notFound})
			}
		}
		checkMalformed(t, r, cases)
		for _, c := range []struct{ method, path, allow string }{
			{"POST", "/healthz", "GET, HEAD"}, {"GET", "/api/v2/auth/provider_a", "POST"}, {"PUT", "/api/v2/auth/account", "DELETE, GET, HEAD"}, {"DELETE", "/api/v2/credits", "GET, HEAD"},
			{"GET", "/api/v2/credits/purchase", "POST"}, {"HEAD", "/api/v2/credits/purchase", "POST"}, {"PUT", "/api/v2/separate", "GET, HEAD, POST"}, {"POST", "/api/v2/separate/x", "DELETE, GET, HEAD"},
			{"PUT", "/api/v2/render", "GET, HEAD, POST"}, {"GET", "/api/v2/separate/v3", "POST"}, {"DELETE", "/api/v2/render/inputs", "POST"}, {"PATCH", "/api/v2/render/x/status", "GET, HEAD"},
			{"DELETE", "/api/v2/assets/upload-url", "POST"}, {"POST", "/api/v2/admin/overview", "GET, HEAD"}, {"BREW", "/healthz", "GET, HEAD"}, {"OPTIONS", "/api/v2/credits", "GET, HEAD"},
		} {
			w := r.do(request{method: c.method, target: c.path})
			if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != c.allow || strings.TrimSpace(w.Body.String()) != wrongMethod {
				t.Errorf("%s %s: %d Allow %q %s, want 405 %q", c.method, c.path, w.Code, w.Header().Get("Allow"), w.Body, c.allow)
			}
		}
	})
}
