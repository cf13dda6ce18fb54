package httpapi

import (
	"encoding/json"
	"testing"
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

// A body that does not decode gets a sentence, and a body that decodes gets none.
func FuzzTypeMismatch(f *testing.F) {
	for _, s := range []string{`{}`, `[]`, `{"segments":[{"order":1.5}]}`, `{"segments":[null,{"order":2e0}]}`, `{"quality":{}}`, `{"segments":null}`,
		`{"bgmClips":[{"volume":1e999}]}`, `{"separationDirectives":[{"selections":[{"volume":"1"}]}]}`, `{"order":`, `{"Quality":{}}`, `{"quality":1,"quality":"low"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var generic map[string]any
		if json.Unmarshal(b, &generic) != nil {
			return
		}
		var cfg configWire
		err := parseObject(b, &cfg)
		if sentence := typeMismatch(b, &cfg); (err != nil) != (sentence != "") && generic != nil {
			t.Errorf("%s: error %v, sentence %q", b, err, sentence)
		}
	})
}

// A repeated key does not hide an unknown one.
func TestUnknownKeys(t *testing.T) {
	for document, want := range map[string]string{
		`{"canvas": {"x": null}, "canvas": {}}`:             "canvas.x is not a known field",
		`{"segments": [{"order": 0}, {"fit": "x", "": 1}]}`: `segments[1]."" is not a known field`,
		`{"segments": [{"sourceFileKey": "x"}]}`:            "segments[0].sourceFileKey is not a known field",
		`{"Canvas": null}`:                                  "Canvas is not a known field",
		`{"canvas" : null , "frame": {"x": 1}}`:             "",
	} {
		if got := (shape{strict: true, absent: []string{"sourceFileKey"}}).compare([]byte(document), &configWire{}); got != want {
			t.Errorf("%s: %q, want %q", document, got, want)
		}
	}
}
