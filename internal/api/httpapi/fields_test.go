// For every field that openapi.yaml describes: its type, its exact name, its bounds, and that an error names it.

package httpapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// jsonInput is a JSON document that an endpoint accepts.
type jsonInput struct {
	target string
	schema *openapi3.Schema
	prefix string // of a field's path in errors
	send   func(document string) request
}

// jsonInputs returns the JSON bodies and form fields that openapi.yaml describes, but for the stores' notifications.
func jsonInputs(t *testing.T) []jsonInput {
	var all []jsonInput
	for path, item := range loadOpenAPI(t).Paths.Map() {
		for method, op := range item.Operations() {
			if op.RequestBody == nil || strings.Contains(path, "/stores/") {
				continue
			}
			for kind, content := range op.RequestBody.Value.Content {
				if kind == "application/json" {
					all = append(all, jsonInput{method + " " + path, content.Schema.Value, "", func(document string) request {
						return request{method: method, target: path, body: document, header: map[string]string{}}
					}})
				}
				for name, encoding := range content.Encoding {
					if encoding.ContentType != "application/json" {
						continue
					}
					in := jsonInput{method + " " + path, content.Schema.Value.Properties[name].Value, "", func(document string) request {
						return form(path, "", part{name: name, text: document}, part{name: "file", file: tinyWAV})
					}}
					if name == "spec" {
						in.prefix = "spec."
					}
					all = append(all, in)
				}
			}
		}
	}
	return all
}

// leaves calls do for every field of a schema. document makes a document whose only value is that of the field.
func leaves(s *openapi3.Schema, path string, document func(value string) string, do func(path string, document func(string) string, s *openapi3.Schema)) {
	for _, some := range slices.Concat(s.AllOf, s.OneOf, s.AnyOf) {
		leaves(some.Value, path, document, do)
	}
	if s.Items != nil {
		leaves(s.Items.Value, path+"[0]", func(v string) string { return document("[" + v + "]") }, do)
	}
	for name, property := range s.Properties {
		inner := func(v string) string { return document(fmt.Sprintf("{%q:%s}", name, v)) }
		at := strings.TrimPrefix(path+"."+name, ".")
		do(at, inner, property.Value)
		leaves(property.Value, at, inner, do)
	}
}

// asker sends requests as users whose submits are not used up.
func asker(r *harness) func(q request) (status int, body map[string]string, text string) {
	admin := r.admin()
	return func(q request) (int, map[string]string, string) {
		q.user = r.submitter()
		if strings.HasSuffix(q.target, "/admin-grant") {
			q.user = admin
		}
		w := r.do(q)
		var body map[string]string
		_ = json.Unmarshal(w.Body.Bytes(), &body) // other answers fail the test by their status
		return w.Code, body, w.Body.String()
	}
}

// typeOf returns the type of a schema that is not null, or "".
func typeOf(s *openapi3.Schema) string {
	for _, some := range append([]*openapi3.SchemaRef{{Value: s}}, slices.Concat(s.AllOf, s.OneOf, s.AnyOf)...) {
		for _, name := range some.Value.Type.Slice() {
			if name != "null" {
				return name
			}
		}
	}
	return ""
}

// Every described field refuses a value of another type, and names itself. Its name is matched exactly, null is
// absent, and strict handling knows it.
func TestEveryFieldNamesItself(t *testing.T) {
	r := onSQLite(t)
	ask, fields := asker(r), 0
	for _, in := range jsonInputs(t) {
		coded := in.prefix != "" || !slices.ContainsFunc([]string{"/render", "/render/v3", "/separate/v3", "/assets/analysis"},
			func(path string) bool { return strings.HasSuffix(in.target, path) })
		leaves(in.schema, "", func(v string) string { return v }, func(path string, document func(string) string, s *openapi3.Schema) {
			kind := map[string]struct{ wrong, want string }{"string": {`{}`, "a string"}, "integer": {`1.5`, "an integer"}, "number": {`"1"`, "a finite number"},
				"boolean": {`0`, "true or false"}, "array": {`{}`, "a list"}, "object": {`[]`, "an object"}}[typeOf(s)]
			if kind.wrong == "" {
				return // forbidden here
			}
			fields++
			path = in.prefix + path
			about := func(body map[string]string) bool {
				sentence, field := body["error"], path
				if coded { // a malformed body, for which the specification has a code; codes have no field
					sentence, field = body["detail"], ""
				}
				return body["field"] == field && (!coded || body["error"] == "bad_request") &&
					(strings.HasPrefix(sentence, path+" must be a") || sentence == path+" must be true or false")
			}
			bad := document(kind.wrong)
			strict := in.send(bad)
			strict.header = maps.Clone(strict.header)
			strict.header["Prefer"] = "handling=strict"
			if status, body, text := ask(strict); status != http.StatusBadRequest || !about(body) || !strings.Contains(text, path+" must be "+kind.want+`"`) {
				t.Errorf("%s %s: %d %s", in.target, bad, status, text)
			}
			key := `"` + path[strings.LastIndexByte(path, '.')+1:] + `":`
			for _, ignored := range []string{strings.Replace(bad, key+kind.wrong, strings.ToUpper(key)+kind.wrong, 1), document("null")} {
				if _, body, text := ask(in.send(ignored)); about(body) {
					t.Errorf("%s %s: %s", in.target, ignored, text)
				}
			}
		})
	}
	if fields < 100 {
		t.Errorf("only %d fields", fields)
	}
}

// smallest returns the smallest object under a name of a film's config. The keys of assets and stems are well-formed.
func smallest(name string) map[string]any {
	key := "assets/" + strings.Repeat("0123456789abcdef", 4) + ".mp4"
	objects := map[string]map[string]any{
		"segments":             {"sourceAssetKey": key, "order": 0, "durationMs": 1000},
		"bgmClips":             {"audioAssetKey": key, "startMs": 0},
		"separationDirectives": {"id": "d", "rangeStartMs": 0, "rangeEndMs": 1000},
		"selections":           {"stemId": "voice_all", "audioUrl": "x"},
		"volumePoints":         {"atMs": 0, "volume": 1},
		"moves":                {"atMs": 0},
		"speedPoints":          {"atMs": 0, "speed": 1},
		"transition":           {"type": "wipe"},
	}
	if object := objects[name]; object != nil {
		return object
	}
	return map[string]any{}
}

// set puts a value at a path into an object, in the smallest objects.
func set(object map[string]any, path string, value any) {
	name, rest, deeper := strings.Cut(path, ".")
	name, list := strings.CutSuffix(name, "[0]")
	if deeper {
		inner := smallest(name)
		set(inner, rest, value)
		value = inner
	}
	if list {
		value = []any{value}
		if name == "speedPoints" { // at least two
			value = append(value.([]any), map[string]any{"atMs": 1 << 40, "speed": 1})
		}
	}
	object[name] = value
}

// The bounds of a film's fields in the document are those of the service. A film within the bounds fails because its
// assets and stems do not exist.
func TestBoundsOfTheFilm(t *testing.T) {
	r := onSQLite(t)
	ask, bounds := asker(r), 0
	schema := loadOpenAPI(t).Components.Schemas["RenderConfigV3"].Value
	leaves(schema, "", func(v string) string { return v }, func(path string, _ func(string) string, s *openapi3.Schema) {
		check := func(value any, valid bool) {
			bounds++
			film := map[string]any{"segments": []any{smallest("segments")}}
			set(film, path, value)
			document, err := json.Marshal(film)
			if err != nil {
				t.Fatal(err)
			}
			status, body, text := ask(request{method: "POST", target: "/api/v2/render/v3", body: string(document)})
			accepted := status == http.StatusNotFound || body["error"] == "invalid_stem_url"
			if accepted != valid || !valid && (status != http.StatusBadRequest || body["field"] != path) {
				t.Errorf("%s = %v: %d %s, want valid %v\n%s", path, value, status, text, valid, document)
			}
		}
		for _, some := range append([]*openapi3.SchemaRef{{Value: s}}, slices.Concat(s.AllOf, s.OneOf, s.AnyOf)...) {
			s := some.Value
			if s.Min != nil {
				check(*s.Min, !s.ExclusiveMin.IsTrue())
				check(*s.Min-1, false)
			}
			if s.Max != nil {
				check(*s.Max, true)
				check(*s.Max+1, false)
			}
			if s.MaxItems != nil {
				name := strings.TrimSuffix(path[strings.LastIndexByte(path, '.')+1:], "[0]")
				check(slices.Repeat([]any{smallest(name)}, int(*s.MaxItems)+1), false)
			}
			for _, v := range s.Enum {
				check(v, true)
			}
			if len(s.Enum) > 0 {
				check("other", false)
			}
		}
	})
	if bounds < 100 {
		t.Errorf("only %d bounds", bounds)
	}
}
