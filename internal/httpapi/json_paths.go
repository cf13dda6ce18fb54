package httpapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"cutroom/internal/fault"
)

// integer is an int64 on the wire. JSON has one kind of number, and some encoders write integers as
// 5.0 or 5e3.
type integer int64

// UnmarshalJSON implements json.Unmarshaler.
func (n *integer) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	v, ok := parseInteger(string(b))
	if !ok {
		return &json.UnmarshalTypeError{Value: string(b[:min(len(b), 32)]), Type: reflect.TypeFor[int64]()}
	}
	*n = integer(v)
	return nil
}

// parseInteger parses a JSON number without a fractional part. Unless it has only digits, it must be exact as a
// double.
func parseInteger(text string) (int64, bool) {
	if v, err := strconv.ParseInt(text, 10, 64); err == nil {
		return v, true
	}
	const exact = 1 << 53
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > exact {
		return 0, false
	}
	return int64(f), true
}

// shape compares a JSON document with the struct that it is decoded into.
type shape struct {
	strict bool     // unknown keys are errors, too
	absent []string // fields of the struct that this endpoint does not accept
}

// typeMismatch returns a sentence about the first value in a JSON document that cannot be decoded
// into dst, a pointer to a struct. The sentence begins with the value's path. It is empty if the
// document fits or is not a JSON object.
func typeMismatch(document []byte, dst any) string { return shape{}.compare(document, dst) }

// knownFields refuses a decoded document with a key that is no field of dst, if the client asked for strict
// handling. absent lists fields of dst that the endpoint does not accept. The path in the error begins with
// prefix.
func knownFields(r *http.Request, document []byte, dst any, prefix string, absent ...string) error {
	if !prefersStrict(r) {
		return nil
	}
	if sentence := (shape{strict: true, absent: absent}).compare(document, dst); sentence != "" {
		refused := fault.Invalidf("%s%s", prefix, sentence)
		if path, unknown := strings.CutSuffix(refused.Sentence, notKnown); unknown {
			refused.Field = path // the key may have any characters
		}
		return refused
	}
	return nil
}

// notKnown ends the sentence about an unknown key.
const notKnown = " is not a known field"

// compare returns a sentence about the first value that does not fit.
func (s shape) compare(document []byte, dst any) string {
	if _, ok := membersOf(document); !ok {
		return ""
	}
	return s.value(document, reflect.TypeOf(dst), "")
}

// member is a key of a JSON object with its value.
type member struct {
	key   string
	value json.RawMessage
}

// membersOf returns the members of a JSON object in order, including repeated keys.
func membersOf(document []byte) (all []member, ok bool) {
	d := json.NewDecoder(bytes.NewReader(document))
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return nil, false
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, false
		}
		m := member{key: key.(string)} // the decoder allows only string keys
		if err := d.Decode(&m.value); err != nil {
			return nil, false
		}
		all = append(all, m)
	}
	_, err := d.Token()
	return all, err == nil
}

// wanted describes the values of a type in a sentence.
var wanted = map[reflect.Type]string{
	reflect.TypeFor[integer](): "an integer", reflect.TypeFor[float64](): "a finite number",
	reflect.TypeFor[string](): "a string", reflect.TypeFor[bool](): "true or false",
}

func (s shape) value(v json.RawMessage, t reflect.Type, path string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case string(v) == "null":
		return "" // treated as absent
	case t.Kind() == reflect.Slice:
		return s.list(v, t, path)
	case t.Kind() == reflect.Struct:
		return s.object(v, t, path)
	}
	if err := json.Unmarshal(v, reflect.New(t).Interface()); err != nil {
		return path + " must be " + wanted[t]
	}
	return ""
}

func (s shape) list(v json.RawMessage, t reflect.Type, path string) string {
	var list []json.RawMessage
	if err := json.Unmarshal(v, &list); err != nil {
		return path + " must be a list"
	}
	for i, item := range list {
		if sentence := s.value(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i)); sentence != "" {
			return sentence
		}
	}
	return ""
}

func (s shape) object(v json.RawMessage, t reflect.Type, path string) string {
	members, ok := membersOf(v)
	if !ok {
		return path + " must be an object"
	}
	for _, m := range members {
		if s.strict && !s.known(m.key, t) {
			return strings.TrimPrefix(path+"."+cmp.Or(printable(m.key), `""`), ".") + notKnown
		}
		for f := range t.Fields() {
			name := wireName(f)
			if !strings.EqualFold(m.key, name) { // as encoding/json matches keys
				continue
			}
			if sentence := s.value(m.value, f.Type, strings.TrimPrefix(path+"."+name, ".")); sentence != "" {
				return sentence
			}
		}
	}
	return ""
}

// wireName returns the JSON key of a field.
func wireName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return cmp.Or(name, f.Name)
}

// reserved are keys that released clients send and that will never have a meaning.
var reserved = []string{"frame", "type", "width", "height", "numberOfSpeakers", "imageClips", "dubClips", "stickers"}

// known reports whether a key is reserved or is, including its case, the key of a field that the endpoint
// accepts.
func (s shape) known(key string, t reflect.Type) bool {
	if slices.Contains(reserved, key) {
		return true
	}
	for f := range t.Fields() {
		if wireName(f) == key {
			return !slices.Contains(s.absent, key)
		}
	}
	return false
}

// maxKey is how much of an unknown key an answer repeats, in characters.
const maxKey = 64

// printable returns a client's key in a form that is safe to repeat in an answer.
func printable(key string) string {
	runes := []rune(key)
	if len(runes) > maxKey {
		key = string(runes[:maxKey]) + "..."
	}
	return strings.Trim(strconv.QuoteToASCII(key), `"`)
}
