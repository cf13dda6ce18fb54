package httpapi

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"cutroom/internal/base/fault"
)

func TestIntegersOnTheWire(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "-7": -7, "5.0": 5, "5e3": 5000, "1.5e1": 15, "-2.0": -2, "1E2": 100,
		"9223372036854775807": 1<<63 - 1, "-9223372036854775808": -1 << 63, "9007199254740992.0": 1 << 53,
	} {
		var v struct{ N *integer }
		if err := json.Unmarshal([]byte(`{"N":`+text+`}`), &v); err != nil || v.N == nil || int64(*v.N) != want {
			t.Errorf("%s: %v, %v", text, v.N, err)
		}
	}
	for _, text := range []string{"1.5", "1e400", "9223372036854775808", "9007199254740994.0", "1e-1", `"5"`, "true", "[]", "{}"} {
		var v struct{ N *integer }
		if err := json.Unmarshal([]byte(`{"N":`+text+`}`), &v); err == nil {
			t.Errorf("%s is taken for %d", text, *v.N)
		}
	}
	var v struct{ N *integer }
	if err := json.Unmarshal([]byte(`{"N":null}`), &v); err != nil || v.N != nil {
		t.Errorf("null: %v, %v", v.N, err)
	}
}

// Keys match exactly, the last of several values counts, null is absent, and everything else is decoded as
// encoding/json does.
func TestDecoding(t *testing.T) {
	for document, want := range map[string]string{
		`{"Segments":[],"QUALITY":5,"quality":"low"}`:                                 `{"quality":"low"}`,
		`{"quality":"low","quality":"high","outputKind":"audio","outputKind":null}`:   `{"quality":"high"}`,
		` {"segments":[{"order":1,"fit":"blur"},{"order":2}],"segments":[{}, null]} `: `{"segments":[{},{}]}`,
		`{"canvas":{"maxSide":640},"canvas":{"fit":"blur"}}`:                          `{"canvas":{"fit":"blur"}}`,
		"{\"quality\":\"\xff\",\"outputKind\":\"\\ud800\",\"\\u0071uality2\":{}}":     `{"quality":"\ufffd","outputKind":"\ufffd"}`,
		`{"\u0071uality":"low","bgmClips":null,"loudness":{}}`:                        `{"quality":"low","loudness":{}}`,
	} {
		var got, like configWire
		if err := (decoder{}).decode("it", []byte(document), &got); err != nil {
			t.Errorf("%s: %v", document, err)
		}
		if err := json.Unmarshal([]byte(want), &like); err != nil || !reflect.DeepEqual(got, like) {
			t.Errorf("%s: %s, want %s", document, encode(got), encode(like))
		}
	}
}

// Whatever encoding/json decodes is decoded, because it looks at more keys. What is decoded can be repeated.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{}`, `[]`, `{"segments":[{"order":1.5}]}`, `{"segments":[null,{"order":2e0}]}`, `{"quality":{}}`, `{"segments":null}`,
		`{"bgmClips":[{"volume":1e999}]}`, `{"separationDirectives":[{"selections":[{"volume":"1"}]}]}`, `{"order":`, `{"Quality":{}}`, `{"quality":1,"quality":"low"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var cfg, again, like configWire
		err := decoder{}.decode("it", b, &cfg)
		var object map[string]any
		if err != nil && json.Unmarshal(b, &object) == nil && object != nil && json.Unmarshal(b, &like) == nil && bytes.Count(b, []byte{','}) < maxValues {
			t.Errorf("%s: %v", b, err)
		}
		if err != nil {
			return
		}
		if err := (decoder{strict: true}).decode("it", encode(cfg), &again); err != nil || !reflect.DeepEqual(cfg, again) {
			t.Errorf("%s: %s becomes %s: %v", b, encode(cfg), encode(again), err)
		}
	})
}

// A repeated key does not hide an unknown one.
func TestUnknownKeys(t *testing.T) {
	for document, want := range map[string]string{
		`{"canvas": {"x": null}, "canvas": {}}`:             "canvas.x",
		`{"segments": [{"order": 0}, {"fit": "x", "": 1}]}`: `segments[1].""`,
		`{"segments": [{"sourceFileKey": 5}]}`:              "segments[0].sourceFileKey",
		`{"Canvas": null}`:                                  "Canvas",
		`{"canvas" : null , "frame": {"x": 1}}`:             "",
	} {
		err := decoder{strict: true, absent: []string{"sourceFileKey"}}.decode("it", []byte(document), &configWire{})
		if f := fault.As(err); (f != nil) != (want != "") || f != nil && (f.Field != want || f.Sentence != want+" is not a known field") {
			t.Errorf("%s: %v, want %q", document, err, want)
		}
	}
}
