package httpapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
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

// parseInteger reads a JSON number without a fractional part. Unless it has only digits, it must be
// exact as a double.
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

// shape is a walk over a JSON document beside the struct that it is decoded into.
type shape struct {
	strict bool     // unknown keys are errors, too
	absent []string // fields of the struct that this endpoint does not have
}

// typeMismatch returns a sentence about the first value in a JSON document that cannot be decoded
// into dst, a pointer to a struct. The sentence begins with the value's path. It is empty if the
// document fits or is not a JSON object.
func typeMismatch(document []byte, dst any) string { return shape{}.compare(document, dst) }

// knownFields refuses a decoded document that has a key which dst has no field for, if
// the client asked for that. Fields of dst that the endpoint does not have are absent. The
// path in the answer begins with prefix.
func knownFields(r *http.Request, document []byte, dst any, prefix string, absent ...string) error {
	if !prefersStrict(r) {
		return nil
	}
	if sentence := (shape{strict: true, absent: absent}).compare(document, dst); sentence != "" {
		return fault.Invalidf("%s%s", prefix, sentence)
	}
	return nil
}

// compare returns a sentence about the first value that does not fit.
func (s shape) compare(document []byte, dst any) string {
	var v any
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return ""
	}
	if _, ok := v.(map[string]any); !ok {
		return ""
	}
	return s.value(v, reflect.TypeOf(dst), "")
}

// wanted describes the values of a type in a sentence.
var wanted = map[reflect.Type]string{
	reflect.TypeFor[integer](): "an integer", reflect.TypeFor[float64](): "a finite number",
	reflect.TypeFor[string](): "a string", reflect.TypeFor[bool](): "true or false",
}

func (s shape) value(v any, t reflect.Type, path string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case v == nil:
		return "" // as if absent
	case t.Kind() == reflect.Slice:
		return s.list(v, t, path)
	case t.Kind() == reflect.Struct:
		return s.object(v, t, path)
	}
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, reflect.New(t).Interface())
	}
	if err != nil {
		return path + " must be " + wanted[t]
	}
	return ""
}

func (s shape) list(v any, t reflect.Type, path string) string {
	list, ok := v.([]any)
	if !ok {
		return path + " must be a list"
	}
	for i, item := range list {
		if sentence := s.value(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i)); sentence != "" {
			return sentence
		}
	}
	return ""
}

func (s shape) object(v any, t reflect.Type, path string) string {
	object, ok := v.(map[string]any)
	if !ok {
		return path + " must be an object"
	}
	if s.strict {
		if key, found := s.unknownKey(object, t); found {
			return strings.TrimPrefix(path+"."+key, ".") + " is not a known field"
		}
	}
	for f := range t.Fields() {
		name := wireName(f)
		for key, value := range object {
			if !strings.EqualFold(key, name) { // as encoding/json matches them
				continue
			}
			if sentence := s.value(value, f.Type, strings.TrimPrefix(path+"."+name, ".")); sentence != "" {
				return sentence
			}
		}
	}
	return ""
}

// wireName is the key of a field.
func wireName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return cmp.Or(name, f.Name)
}

// reserved are keys that clients in the field send, and that never get a meaning.
var reserved = []string{"frame", "type", "width", "height", "numberOfSpeakers", "imageClips", "dubClips", "stickers"}

// unknownKey returns the first key in alphabetical order that is neither reserved nor,
// exactly as written, that of a field.
func (s shape) unknownKey(object map[string]any, t reflect.Type) (key string, found bool) {
	known := slices.Clone(reserved)
	for f := range t.Fields() {
		if name := wireName(f); !slices.Contains(s.absent, name) {
			known = append(known, name)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if !slices.Contains(known, key) {
			return cmp.Or(printable(key), `""`), true
		}
	}
	return "", false
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
