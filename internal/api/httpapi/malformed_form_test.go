// Malformed forms, references, stem links and queries, each with its exact answer. malformed_test.go has the other
// endpoints.

package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// tinyWAV is a playable second of silence: 8 kHz, 8 bit, mono.
var tinyWAV = "RIFF\x64\x1f\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x40\x1f\x00\x00\x01\x00\x08\x00data\x40\x1f\x00\x00" +
	strings.Repeat("\x80", 8000)

// formRefusals are the answers of every form endpoint to a body that is not a form.
func formRefusals(target string) []malformed {
	var out []malformed
	add := func(name, contentType, body, want string) {
		q := request{method: "POST", target: target, body: body, header: map[string]string{}}
		if contentType != "" {
			q.header["Content-Type"] = contentType
		}
		out = append(out, malformed{name: name, q: q, status: 400, body: want})
	}
	whole := form(target, "", part{name: "config", text: "{}"}, part{name: "spec", text: "{}"})
	good, contentType := whole.body, whole.header["Content-Type"]
	add("no content type", "", good, badForm)
	add("JSON", "application/json", "{}", badForm)
	add("other multipart", strings.Replace(contentType, "form-data", "mixed", 1), good, badForm)
	add("no boundary", "multipart/form-data", good, noBoundary)
	add("no boundary but a charset", "Multipart/Form-Data; charset=utf-8", good, noBoundary)
	add("empty boundary", `multipart/form-data; boundary=""`, good, noBoundary)
	add("unusable boundary", "multipart/form-data; boundary=a b", good, noBoundary)
	add("garbage content type", `multipart/form-data; boundary=x; boundary=y; ;;`, good, noBoundary)
	for _, encoding := range []string{"gzip", "br", "identity, gzip", "DEFLATE"} {
		add("encoded with "+encoding, contentType, good, encoded)
		out[len(out)-1].q.header["Content-Encoding"], out[len(out)-1].status = encoding, 415
	}
	add("no body", contentType, "", brokenForm)
	add("other boundary", "multipart/form-data; boundary=zzz", good, brokenForm)
	add("cut off", contentType, good[:len(good)-16], brokenForm)
	add("cut off in the boundary", contentType, good[:5], brokenForm)
	add("megabytes before the first part", contentType, strings.Repeat("line\r\n", 300_000)+good, brokenForm)
	add("an endless header", "multipart/form-data; boundary=b", "--b\r\nX-A: "+strings.Repeat("a", 100_000)+"\r\n\r\nx\r\n--b--\r\n", brokenForm)
	add("endless headers", "multipart/form-data; boundary=b", "--b\r\n"+strings.Repeat("X-A: a\r\n", 20_000)+"\r\nx\r\n--b--\r\n", brokenForm)
	const nameless = `{"error":"bad_request","detail":"a part of the form has no usable name"}`
	for name, head := range map[string]string{"no name": "form-data", "blank name": `form-data; name=""`, "attachment": `attachment; name="config"`,
		"file name only": `form-data; filename="a"`, "control characters": `form-data; name*=utf-8''a%0D%0Ab`,
		"text from right to left": `form-data; name*=utf-8''a%E2%80%AEb`, "not UTF-8": "form-data; name=\"a\xff\"", "nothing": " ", "long name": `form-data; name="` + strings.Repeat("n", 129) + `"`} {
		q := form(target, "", part{head: head, text: "x"})
		out = append(out, malformed{name: name, q: q, status: 400, body: nameless})
	}
	crowded, tooMany := 413, "The form has more than 64 parts"
	if target == "/api/v2/separate" { // all refusals of this endpoint are 400
		crowded, tooMany = 400, "the form has more than 64 parts"
	}
	var many []part
	for i := range 65 {
		many = append(many, part{name: fmt.Sprintf("part_%d", i), text: "x"})
	}
	for name, key := range map[string]string{"bad": "schlüssel", "long": strings.Repeat("k", 256)} {
		q := request{method: "POST", target: target, body: good, header: map[string]string{"Content-Type": contentType, "Idempotency-Key": key}}
		out = append(out, malformed{name: name + " idempotency key", q: q, status: 400, body: badKey})
	}
	return append(out, malformed{name: "65 parts", q: form(target, "", many...), status: crowded, body: `{"error":"` + tooMany + `"}`})
}

// deletedUser is the answer to a token of a deleted account.
func deletedUser(r *harness, q request) malformed {
	q.user = r.ghost()
	return malformed{name: "deleted user", q: q, status: 401, body: deleted}
}

func TestMalformedSeparations(t *testing.T) {
	r := onSQLite(t)
	const target = "/api/v2/separate"
	cases := append(formRefusals(target), deletedUser(r, form(target, "")))
	add := func(name, body string, parts ...part) {
		cases = append(cases, malformed{name: name, q: form(target, "", parts...), status: 400, body: body})
	}
	file, spec := part{name: "file", file: tinyWAV}, part{name: "spec", text: "{}"}
	const noSpec = `{"error":"bad_request","detail":"spec is not a JSON object"}`
	add("no file", `{"error":"file is required"}`, spec)
	add("no spec", `{"error":"spec is required"}`, file)
	add("file twice", `{"error":"file is given twice"}`, file, file, spec)
	add("spec twice", `{"error":"spec is given twice"}`, spec, spec, file)
	for name, text := range map[string]string{"empty": "", "text": "auto", "list": "[]", "deep": strings.Repeat(`{"a":`, 20000)} {
		add("spec "+name, noSpec, file, part{name: "spec", text: text})
	}
	for _, code := range []string{"en-" + strings.Repeat("abcd-", 7) + "abcd", ``, `english`, `e`, `en us`, `en\u0000`, `日本`, `../x`} {
		add("language "+code, `{"error":"spec.sourceLanguageCode must be auto or an ISO language code"}`, file, part{name: "spec", text: `{"sourceLanguageCode":"` + code + `"}`})
	}
	for name, content := range map[string]string{"text": "hello", "flac": "fLaC\x00\x00\x00\x22", "ogg": "OggS\x00\x02", "film": "\x1aE\xdf\xa3", "NULs": strings.Repeat("\x00", 4096)} {
		add("content "+name, `{"error":"unsupported_audio_format"}`, part{name: "file", file: content}, spec)
	}
	add("file of nothing", `{"error":"unsupported_audio_format"}`, part{head: `form-data; name=file; filename=a.mp3`}, spec)
	add("one byte over the cap", `{"error":"file is larger than the limit of 1 MB"}`, part{name: "file", file: strings.Repeat("x", 1<<20+1)}, spec)
	add("stray part over the cap", `{"error":"file is larger than the limit of 1 MB"}`, part{name: "other", file: strings.Repeat("x", 1<<20+1)}, spec)
	add("far over the cap", `{"error":"file is larger than the limit of 1 MB"}`, part{name: "file", file: strings.Repeat("x", 8<<20)}, spec)
	add("spec over the cap", `{"error":"spec: the text is larger than the limit of 1 MB"}`, file, part{name: "spec", text: strings.Repeat("x", 1<<20+1)})
	checkMalformed(t, r, cases)

	poor := r.signIn()
	if w := r.do(form(target, poor.token, part{name: "file", file: tinyWAV}, spec)); w.Code != http.StatusAccepted {
		t.Errorf("a good request: %d %s", w.Code, w.Body)
	}
	// A file of exactly the limit is not too large, whatever precedes it.
	exact := part{name: "file", file: strings.Repeat("x", 1<<20)}
	for _, parts := range [][]part{{spec, exact}, {exact, spec}} {
		if w := r.do(form(target, poor.token, parts...)); !strings.Contains(w.Body.String(), "unsupported_audio_format") {
			t.Errorf("a file of the limit: %d %s", w.Code, w.Body)
		}
	}
}

func TestMalformedRenders(t *testing.T) {
	r := onSQLite(t)
	const target = "/api/v2/render"
	cases := append(formRefusals(target), deletedUser(r, form(target, "")))
	add := func(name, config, body string, parts ...part) {
		parts = append(parts, part{name: "config", text: config})
		cases = append(cases, malformed{name: name, q: form(target, "", parts...), status: 400, body: body})
	}
	sentence := func(s string) string { return `{"error":"` + s + `"}` }
	detail := func(s string) string { return `{"error":"bad_request","detail":"` + s + `"}` }
	cases = append(cases,
		malformed{name: "no config", q: form(target, "", part{name: "video", file: "x"}), status: 400, body: sentence("config is required")},
		malformed{name: "config twice", q: form(target, "", part{name: "config", text: "{}"}, part{name: "config", text: "{}"}), status: 400, body: sentence("config is given twice")},
		malformed{name: "config over the cap", q: form(target, "", part{name: "config", text: strings.Repeat(" ", 1<<20+1)}), status: 413, body: tooLarge},
		malformed{name: "text field over the cap", q: form(target, "", part{name: "note", text: strings.Repeat("x", 1<<20+1)}), status: 413, body: tooLarge},
		malformed{name: "film over the cap", q: form(target, "", part{name: "video", file: strings.Repeat("x", 2<<20+1)}), status: 413, body: sentence("The upload is larger than the limit of 2 MB")},
		malformed{name: "announced far over the cap", q: form(target, "", part{name: "video", file: strings.Repeat("x", 9<<20)}), status: 413, body: sentence("The upload is larger than the limit of 2 MB")})
	for name, text := range map[string]string{"empty": "", "null": "null", "list": "[]", "cut off": `{"segments":[`, "deep": strings.Repeat(`{"a":`, 20000)} {
		add("config "+name, text, detail("config is not a JSON object"))
	}
	add("nothing", `{}`, sentence("segments or videoDurationMs is required"))
	add("empty segments", `{"segments":[]}`, sentence("segments must not be empty"))
	add("null segment", `{"segments":[null]}`, sentence("segments[0].sourceFileKey is required"))
	add("no key", `{"segments":[{"order":0,"durationMs":1}]}`, sentence("segments[0].sourceFileKey is required"))
	add("asset key", `{"segments":[{"sourceAssetKey":"assets/x","order":0,"durationMs":1}]}`, sentence("segments[0].sourceFileKey is required"))
	add("no order", `{"segments":[{"sourceFileKey":"video","durationMs":1}]}`, sentence("segments[0].order is required"))
	add("no length", `{"segments":[{"sourceFileKey":"video","order":0}]}`, sentence("segments[0].durationMs is required"))
	segment := func(rest string) string {
		return `{"segments":[{"sourceFileKey":"video","order":0,"durationMs":1000` + rest + `}]}`
	}
	for rest, s := range map[string]string{
		`,"sourceFileKey":""`: "segments[0].sourceFileKey is required", `,"sourceFileKey":"bgm_9"`: `segments[0].sourceFileKey names no uploaded part: \"bgm_9\"`,
		`,"sourceFileKey":"\u0000"`: `segments[0].sourceFileKey names no uploaded part: \"\\x00\"`, `,"durationMs":-9223372036854775808`: "segments[0].durationMs must be > 0",
		`,"transition":{}`: "segments[0].transition.type is required", `,"transition":{"type":"push","direction":""}`: "segments[0].transition.direction must be left, right, up or down",
		`,"transition":{"type":"dissolve","direction":"left"}`: "segments[0].transition.direction must be absent unless type is wipe, slide or push",
		`,"fit":""`: "segments[0].fit must be contain, cover or blur", `}],"fadeIn":{"color":""},"x":[{`: "fadeIn.color must be black or white",
		`}],"canvas":{"shortSide":721},"x":[{`:               "canvas.shortSide must be even and 240..2160",
		`}],"canvas":{"shortSide":720,"maxSide":720},"x":[{`: "canvas.shortSide must not be set together with canvas.maxSide",
	} {
		add(s+rest, segment(rest), sentence(s), part{name: "video", file: "x"})
	}
	add("no film", `{"videoDurationMs":5}`, sentence("video is required"))
	add("empty film", `{"videoDurationMs":5}`, sentence("video: the uploaded part is empty"), part{name: "video"})
	add("text for a film", `{"videoDurationMs":5}`, sentence("video: the uploaded part is not a video or audio file of a supported format"), part{name: "video", file: "hello"})
	for name, id := range map[string]string{"unknown": "0123456789abcdef", "NUL": "a\x00b", "not UTF-8": "\xff\xfe", "long": strings.Repeat("f", 100000)} {
		add("input "+name, `{"videoDurationMs":5}`, sentence("inputId is unknown or has expired; upload the video again"), part{name: "inputId", text: id})
	}
	clip := func(rest string) string {
		return strings.TrimSuffix(segment(""), "}") + `,"bgmClips":[{` + rest + `}]}`
	}
	add("clip without a key", clip(`"startMs":0`), sentence("bgmClips[0].audioFileKey is required"))
	add("clip without a start", clip(`"audioFileKey":"bgm_0"`), sentence("bgmClips[0].startMs is required"))
	directive := func(rest string) string {
		return strings.TrimSuffix(segment(""), "}") + `,"separationDirectives":[{` + rest + `}]}`
	}
	const ranged = `"id":"d","rangeStartMs":0,"rangeEndMs":1`
	add("directive without id", directive(`"rangeStartMs":0,"rangeEndMs":1`), sentence("separationDirectives[0].id is required"))
	add("directive without range", directive(`"id":"d","rangeStartMs":0`), sentence("separationDirectives[0].rangeEndMs is required"))
	for name, u := range map[string]string{"missing": "", "null": `"audioUrl":null,`, "NUL": `"audioUrl":"/api/v2/separate/\u0000",`, "long": `"audioUrl":"` + strings.Repeat("x", 100000) + `",`} {
		config := directive(ranged + `,"selections":[{` + u + `"stemId":"voice_all"}]`)
		video := part{name: "video", file: tinyWAV}
		add("stem URL "+name, config, sentence("invalid_stem_url"), video)
	}
	for rest, want := range map[string]string{
		`[{"volume":1}]`:                                "volumePoints[0].atMs is required",
		`[{"atMs":0,"volume":1},{"atMs":5}]`:            "volumePoints[1].volume is required",
		`[{"atMs":5,"volume":1},{"atMs":5,"volume":0}]`: "volumePoints[1].atMs must be > that of the point before it",
	} {
		add("points "+rest, segment(`,"volumePoints":`+rest), sentence("segments[0]."+want), part{name: "video", file: tinyWAV})
	}
	for rest, want := range map[string]string{`"endMs":1000`: "endMs must be 0 or > startMs", `"endMs":-5`: "endMs must be 0 or > startMs",
		`"voice":true,"ducking":{}`: "voice must not be set together with ducking"} {
		add("clip "+rest, clip(`"audioFileKey":"bgm_0","startMs":1000,`+rest), sentence("bgmClips[0]."+want), part{name: "video", file: tinyWAV}, part{name: "bgm_0", file: tinyWAV})
	}
	checkMalformed(t, r, cases)
}

func TestMalformedRenderInputs(t *testing.T) {
	r := onSQLite(t)
	const target = "/api/v2/render/inputs"
	cases := append(formRefusals(target), deletedUser(r, form(target, "")))
	for name, c := range map[string]struct {
		parts  []part
		status int
		body   string
	}{
		"no video":   {[]part{{name: "film", file: "x"}}, 400, `{"error":"video is required"}`},
		"empty":      {[]part{{head: `form-data; name=video; filename=`}}, 400, `{"error":"video is empty"}`},
		"text":       {[]part{{name: "video", file: "hello"}}, 400, `{"error":"video is not a video file of a supported format"}`},
		"twice":      {[]part{{name: "video", file: "a"}, {name: "video", file: "b"}}, 400, `{"error":"video is given twice"}`},
		"too big":    {[]part{{name: "video", file: strings.Repeat("x", 2<<20+1)}}, 413, `{"error":"The upload is larger than the limit of 2 MB"}`},
		"stray part": {[]part{{name: "video", file: "x"}, {name: "y", file: strings.Repeat("x", 2<<20)}}, 413, `{"error":"The upload is larger than the limit of 2 MB"}`},
	} {
		cases = append(cases, malformed{name: name, q: form(target, "", c.parts...), status: c.status, body: c.body})
	}
	checkMalformed(t, r, cases)
}

func TestMalformedReferences(t *testing.T) {
	const v3, upload = "/api/v2/render/v3", "/api/v2/assets/upload-url"
	t.Run("without a bucket", func(t *testing.T) {
		r := newHarness(t, harnessOptions{})
		for _, target := range []string{v3, upload} {
			checkMalformed(t, r, []malformed{{name: "disabled " + target, q: post(target, "{"), status: 503, body: `{"error":"r2_disabled"}`}})
		}
		checkMalformed(t, r, []malformed{deletedUser(r, post(v3, "{"))})
	})
	r := onSQLite(t)
	hash := strings.Repeat("0123456789abcdef", 4)
	cases := append(jsonRefusals(v3, false), jsonRefusals(upload, false)...)
	add := func(name, target, body string, status int, want string) {
		cases = append(cases, malformed{name: name, q: post(target, body), status: status, body: want})
	}
	for _, key := range []string{"x", "assets/" + hash + `.mp4\u0000`, strings.Repeat("a", 10000)} {
		add("segment "+key, v3, `{"segments":[{"sourceAssetKey":"`+key+`","order":0,"durationMs":1}]}`, 400, `{"error":"invalid_asset_key"}`)
	}
	add("blank key", v3, `{"segments":[{"sourceAssetKey":"","order":0,"durationMs":1}]}`, 400, `{"error":"invalid_asset_key"}`)
	add("bad key among other faults", v3, `{"segments":[{"sourceAssetKey":"x","durationMs":-1}],"quality":"best"}`, 400, `{"error":"invalid_asset_key"}`)
	add("bad key of music", v3, `{"segments":[{"sourceAssetKey":"assets/`+hash+`.mp4","order":0,"durationMs":1}],"bgmClips":[{"audioAssetKey":"","startMs":0}]}`, 400, `{"error":"invalid_asset_key"}`)
	add("no key", v3, `{"segments":[{"sourceAssetKey":null,"order":0,"durationMs":1}]}`, 400, `{"error":"segments[0].sourceAssetKey is required"}`)
	add("file key", v3, `{"segments":[{"sourceFileKey":"video","order":0,"durationMs":1}]}`, 400, `{"error":"segments[0].sourceAssetKey is required"}`)
	add("legacy", v3, `{"videoDurationMs":5}`, 400, `{"error":"segments is required"}`)
	add("no such asset", v3, `{"segments":[{"sourceAssetKey":"assets/`+hash+`.mp4","order":0,"durationMs":1}]}`, 404, `{"error":"segments[0].sourceAssetKey: the asset does not exist in the object store"}`)
	add("size of nothing", upload, `{"sha256Hex":"`+hash+`","ext":"mp4","contentType":"video/mp4"}`, 400, `{"error":"sizeBytes must be > 0"}`)
	add("bad idempotency key", v3, "{}", 400, badKey)
	cases[len(cases)-1].q.header = map[string]string{"Idempotency-Key": "\x7f"}
	cases = append(cases, deletedUser(r, post(v3, "{")))
	checkMalformed(t, r, cases)
}

func TestMalformedStemLinks(t *testing.T) {
	r := onSQLite(t)
	const stem = "/api/v2/separate/sep-0190b6f2-7e0a-7cc1-8f5e-0123456789ab/stem/voice_all"
	cases := []malformed{
		{name: "no token", q: get(stem), anon: true, status: 401, body: noToken},
		{name: "empty token", q: get(stem + "?token="), anon: true, status: 401, body: noToken},
		{name: "bearer instead", q: get(stem), status: 401, body: noToken},
	}
	for _, token := range []string{"x", ".", "1.", ".x", "1.x", "9999999999.AAAA", "9999999999.", "-1.AAAA", "1e9.AAAA", "%00", "%ff", "9999999999.AA%00", "99999999999999999999.AAAA",
		strings.Repeat("9", 5000), "9999999999." + strings.Repeat("A", 43)} {
		cases = append(cases, malformed{name: token, q: get(stem + "?token=" + token), anon: true, status: 403, body: `{"error":"invalid_stem_token"}`})
	}
	checkMalformed(t, r, cases)
}

func TestMalformedAdminQueries(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		admin := r.admin()
		for _, q := range []string{"%00", "%ff", "%25", "_", "'", strings.Repeat("x", 20000), "%5C", "%D9%A1", "a%00b"} {
			if w := r.do(request{method: "GET", target: "/api/v2/admin/users?q=" + q, user: admin}); w.Code != http.StatusOK {
				t.Errorf("search for %.40q: %d %s", q, w.Code, w.Body)
			}
		}
	})
}
