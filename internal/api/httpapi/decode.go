// Decodes JSON bodies. encoding/json matches keys in any case and does not say where a value of the wrong type is, so
// this decoder walks the document itself.

package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"cutroom/internal/base/fault"
	"cutroom/internal/domain/account"
)

// integer is an int64 on the wire. JSON has one kind of number, and some encoders write integers as 5.0 or 5e3.
type integer int64

// UnmarshalJSON reads a number without a fractional part. Unless it has only digits, it must be exact as a double.
func (n *integer) UnmarshalJSON(b []byte) error {
	if v, err := strconv.ParseInt(string(b), 10, 64); err == nil {
		*n = integer(v)
		return nil
	}
	const exact = 1 << 53
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > exact {
		return errWrongType
	}
	*n = integer(f)
	return nil
}

// decoder decodes JSON objects into structs. Unlike encoding/json, it matches keys exactly, and its errors begin
// with the path of the value.
type decoder struct {
	strict bool     // unknown keys are errors, too
	prefix string   // of every path
	absent []string // fields of the struct that this endpoint does not accept
}

// maxValues is far above the number of values in any valid request. A megabyte of empty values would take a hundred
// times its size as structs.
const maxValues = 50_000

// errWrongType is the cause of an error about a value of the wrong type.
var errWrongType = errors.New("wrong type of a JSON value")

// readObject decodes the body of a request into dst, a pointer to a struct. It ignores unknown keys, unless the client
// asks for strict handling. absent lists the fields of dst that the endpoint does not accept.
func readObject(w http.ResponseWriter, r *http.Request, dst any, absent ...string) error {
	b, err := readBody(w, r)
	if err != nil {
		return err
	}
	return decoder{strict: prefersStrict(r), absent: absent}.decode("the body", b, dst)
}

// readSmall is readObject for a request of a few values instead of a document. There a value of the wrong type counts
// as a malformed body: the error is bad_request, and its detail names the field.
func readSmall(w http.ResponseWriter, r *http.Request, dst any) error {
	return asBadRequest(readObject(w, r, dst))
}

// call returns the endpoint of a small request, see readSmall: it answers 200 with what do returns.
func call[Request, Body any](do func(ctx context.Context, userID string, req Request) (Body, error)) userHandler {
	return func(w http.ResponseWriter, r *http.Request, user account.Principal) error {
		var req Request
		if err := readSmall(w, r, &req); err != nil {
			return err
		}
		body, err := do(r.Context(), user.UserID, req)
		return answer(w, body, err)
	}
}

// asBadRequest returns an error about a value of the wrong type as bad_request, and any other unchanged.
func asBadRequest(err error) error {
	if !errors.Is(err, errWrongType) {
		return err
	}
	return errBadRequest.WithDetail("%s", fault.As(err).Sentence)
}

// decode decodes exactly one JSON object. what names the document in errors.
func (d decoder) decode(what string, document []byte, dst any) error {
	if bytes.Count(document, []byte{','}) >= maxValues {
		return errBadRequest.WithDetail("the JSON has more than %d values", maxValues)
	}
	if !bytes.HasPrefix(bytes.TrimLeft(document, " \t\r\n"), []byte{'{'}) || !json.Valid(document) {
		return errBadRequest.WithDetail("%s is not a JSON object", what)
	}
	return d.value(document, reflect.ValueOf(dst).Elem(), d.prefix)
}

// wanted describes the values of a type in a sentence.
var wanted = map[reflect.Type]string{
	reflect.TypeFor[integer](): "an integer", reflect.TypeFor[float64](): "a finite number",
	reflect.TypeFor[string](): "a string", reflect.TypeFor[bool](): "true or false",
}

func (d decoder) value(v json.RawMessage, dst reflect.Value, path string) error {
	dst.SetZero() // an earlier member with this key does not count
	switch {
	case string(v) == "null": // treated as absent
		return nil
	case dst.Kind() == reflect.Pointer:
		dst.Set(reflect.New(dst.Type().Elem()))
		return d.value(v, dst.Elem(), path)
	case dst.Kind() == reflect.Slice:
		return d.list(v, dst, path)
	case dst.Kind() == reflect.Struct:
		return d.object(v, dst, path)
	}
	if json.Unmarshal(v, dst.Addr().Interface()) != nil {
		return mismatch(path, wanted[dst.Type()])
	}
	return nil
}

func (d decoder) list(v json.RawMessage, dst reflect.Value, path string) error {
	var items []json.RawMessage
	if json.Unmarshal(v, &items) != nil {
		return mismatch(path, "a list")
	}
	dst.Set(reflect.MakeSlice(dst.Type(), len(items), len(items)))
	for i, item := range items {
		if err := d.value(item, dst.Index(i), fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	return nil
}

// object decodes the members of an object in order. If a key is repeated, the last one counts, but none may be of the
// wrong type.
func (d decoder) object(v json.RawMessage, dst reflect.Value, path string) error {
	members := json.NewDecoder(bytes.NewReader(v)) // of valid JSON
	if start, _ := members.Token(); start != json.Delim('{') {
		return mismatch(path, "an object")
	}
	for members.More() {
		token, err := members.Token()
		if err != nil {
			return err
		}
		key := token.(string) // the decoder allows only string keys
		var member json.RawMessage
		if err := members.Decode(&member); err != nil {
			return err
		}
		if field, known := d.field(dst, key); known {
			err = d.value(member, field, strings.TrimPrefix(path+"."+key, "."))
		} else if d.strict && !slices.Contains(reserved, key) {
			err = unknownKey(strings.TrimPrefix(path+"."+cmp.Or(printable(key), `""`), "."))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// field returns the field of a struct that has this JSON key and that the endpoint accepts.
func (d decoder) field(dst reflect.Value, key string) (reflect.Value, bool) {
	if slices.Contains(d.absent, key) {
		return reflect.Value{}, false
	}
	for f, v := range dst.Fields() {
		if f.Tag.Get("json") == key {
			return v, true
		}
	}
	return reflect.Value{}, false
}

// missing returns an error that names the first required field without a value, in the order of the structs' fields.
// absent lists the fields that the endpoint does not accept.
func missing(v reflect.Value, path string, absent []string) error {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return missing(v.Elem(), path, absent)
		}
	case reflect.Slice:
		for i, item := range v.Seq2() {
			if err := missing(item, fmt.Sprintf("%s[%v]", path, i), absent); err != nil {
				return err
			}
		}
	case reflect.Struct:
		for f, field := range v.Fields() {
			key := f.Tag.Get("json")
			at := strings.TrimPrefix(path+"."+key, ".")
			if f.Tag.Get("required") != "" && field.IsNil() && !slices.Contains(absent, key) {
				return fault.Invalidf("%s is required", at)
			}
			if err := missing(field, at, absent); err != nil {
				return err
			}
		}
	}
	return nil
}

func mismatch(path, want string) error {
	return &fault.Error{Kind: fault.Invalid, Sentence: path + " must be " + want, Field: path, Err: errWrongType}
}

// unknownKey refuses a key for a client that asked for strict handling.
func unknownKey(path string) error {
	return &fault.Error{Kind: fault.Invalid, Sentence: path + " is not a known field", Field: path}
}

// reserved are keys that released clients send and that will never have a meaning.
var reserved = []string{"frame", "type", "width", "height", "numberOfSpeakers", "imageClips", "dubClips", "stickers"}

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
