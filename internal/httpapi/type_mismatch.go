package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// integer is an int64 on the wire. JSON knows one kind of number, and some
// encoders write whole ones as 5.0 or 5e3: those are integers too.
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

// parseInteger reads a JSON number without a fractional part. Those that are not
// written as plain digits must be exact as a double.
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

// typeMismatch finds the first value in a JSON document that cannot be decoded
// into dst, a pointer to a struct, and says so in a sentence that begins with its
// path. It is empty when the document is no JSON object, or fits.
func typeMismatch(document []byte, dst any) string {
	var v any
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return ""
	}
	if _, ok := v.(map[string]any); !ok {
		return ""
	}
	return typeMismatchAt(v, reflect.TypeOf(dst), "")
}

// wanted is how a sentence calls what a value of a type is.
var wanted = map[reflect.Type]string{
	reflect.TypeFor[integer](): "an integer", reflect.TypeFor[float64](): "a finite number",
	reflect.TypeFor[string](): "a string", reflect.TypeFor[bool](): "true or false",
}

func typeMismatchAt(v any, t reflect.Type, path string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case v == nil:
		return "" // as if absent
	case t.Kind() == reflect.Slice:
		return listMismatch(v, t, path)
	case t.Kind() == reflect.Struct:
		return objectMismatch(v, t, path)
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

func listMismatch(v any, t reflect.Type, path string) string {
	list, ok := v.([]any)
	if !ok {
		return path + " must be a list"
	}
	for i, item := range list {
		if s := typeMismatchAt(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i)); s != "" {
			return s
		}
	}
	return ""
}

func objectMismatch(v any, t reflect.Type, path string) string {
	object, ok := v.(map[string]any)
	if !ok {
		return path + " must be an object"
	}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		for key, value := range object {
			if !strings.EqualFold(key, name) { // as encoding/json matches them
				continue
			}
			if s := typeMismatchAt(value, f.Type, strings.TrimPrefix(path+"."+name, ".")); s != "" {
				return s
			}
		}
	}
	return ""
}
