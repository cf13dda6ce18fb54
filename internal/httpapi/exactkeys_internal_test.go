package httpapi

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
)

type keyed struct {
	embedded
	Name    string           `json:"name,omitempty"`
	Plain   int              // by its Go name
	Hidden  string           `json:"-"`
	Deep    *keyed           `json:"deep"`
	List    []leaf           `json:"list"`
	Map     map[string]*leaf `json:"map"`
	Own     own              `json:"own"`
	Anyhow  any              `json:"anyhow"`
	private string
}

type embedded struct {
	Inner string `json:"inner"`
}

type leaf struct {
	Count int64 `json:"count"`
}

// own decodes itself, as it likes.
type own struct{ text string }

func (o *own) UnmarshalJSON(b []byte) error { o.text = string(b); return nil }

func TestKeysAreExact(t *testing.T) {
	for document, want := range map[string]keyed{
		`{"name":"a","inner":"b","Plain":3,"deep":{"name":"c"}}`: {Name: "a", embedded: embedded{"b"}, Plain: 3, Deep: &keyed{Name: "c"}},
		`{"Name":"a","INNER":"b","plain":3,"deeP":{"name":"c"}}`: {},
		`{"name":"a","NAME":"b"}`:                                {Name: "a"},
		`{"NAME":"b","name":"a","name":"c"}`:                     {Name: "c"},
		`{"NAME":7,"PLAIN":"seven","LIST":{},"x":[{}]}`:          {}, // what is ignored may have any shape
		`{"deep":{"deep":{"NAME":"a"},"Deep":{"name":"b"}}}`:     {Deep: &keyed{Deep: &keyed{}}},
		`{"list":[{"count":1},{"Count":2},null,{}]}`:             {List: []leaf{{1}, {}, {}, {}}},
		`{"map":{"A":{"count":1},"a":{"COUNT":2},"n":null}}`:     {Map: map[string]*leaf{"A": {1}, "a": {}, "n": nil}},
		`{"own":{"Count":1}}`:                                    {Own: own{`{"Count":1}`}},
		`{"anyhow":{"Count":1}}`:                                 {Anyhow: map[string]any{"Count": 1.0}},
		`{"Hidden":"x","-":"x","private":"x"}`:                   {},
		`{"deep":null,"list":null,"map":null,"name":null}`:       {},
		`{"name":"<&>\u2028é"}`:                                  {Name: "<&>\u2028é"},
		` {} `:                                                   {},
	} {
		var got keyed
		if err := parseObject([]byte(document), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v (%v)", document, got, want, err)
		}
	}
}

func TestWrongTypesKeepTheirField(t *testing.T) {
	for document, field := range map[string]string{
		`{"name":7}`:                     "name",
		`{"list":{}}`:                    "list",
		`{"list":[{"count":"one"}]}`:     "list.count",
		`{"deep":{"list":[7]}}`:          "deep.list",
		`{"deep":[]}`:                    "deep",
		`{"NAME":[],"map":{"x":"leaf"}}`: "map",
	} {
		err := parseObject([]byte(document), &keyed{})
		var te *json.UnmarshalTypeError
		if !errors.As(err, &te) || te.Field != field {
			t.Errorf("%s: %v, want a wrong type of %s", document, err, field)
		}
	}
	for _, document := range []string{"", "null", "[]", `"x"`, "{", `{"name":}`, `{"name":"a"} {}`, `{"NAME":tru}`} {
		if err := parseObject([]byte(document), &keyed{}); err == nil {
			t.Errorf("%s: accepted", document)
		}
	}
}

// A document whose keys are all exact is decoded as encoding/json would.
func FuzzExactKeys(f *testing.F) {
	for _, s := range []string{`{"name":"a"}`, `{"list":[{"count":1}],"deep":{"map":{"x":{"count":2}}}}`, `{"list":[null,7]}`, `{"name":"\ud800"}`, `[`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, document string) {
		once := exactKeys([]byte(document), reflect.TypeFor[keyed]())
		if json.Valid([]byte(document)) != json.Valid(once) {
			t.Fatalf("%q becomes %q", document, once)
		}
		var got, want keyed
		gotErr, wantErr := parseObject(once, &got), json.Unmarshal(once, &want)
		if gotErr == nil && (wantErr != nil || !reflect.DeepEqual(got, want)) {
			t.Fatalf("%q: %+v, want %+v (%v)", once, got, want, wantErr)
		}
	})
}
