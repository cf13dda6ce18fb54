package httpapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"reflect"
	"slices"

	"cutroom/internal/film/timeline"
)

// fingerprint returns a digest of what a request means to an endpoint, for its Idempotency-Key: apps that encode a
// request again may write its keys in another order, write its numbers in another form, or spell out its defaults. The
// values are decoded, with defaults filled in.
func fingerprint(endpoint string, values ...any) string {
	document := []any{endpoint}
	for _, v := range values {
		document = append(document, plain(reflect.ValueOf(v)))
	}
	encoded, err := json.Marshal(document)
	if err != nil {
		panic(err) // a bug: the decoder accepts only finite numbers
	}
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:])
}

// plain returns a value as maps, lists and basic types. It leaves out zero fields, so that a field that a later version
// adds does not change the fingerprints of requests without it.
func plain(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return plain(v.Elem())
	case reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = plain(v.Index(i))
		}
		return list
	case reflect.Struct:
		fields := map[string]any{}
		for f, field := range v.Fields() {
			if !field.IsZero() {
				fields[f.Name] = plain(field)
			}
		}
		return fields
	case reflect.Float64:
		return v.Float() + 0 // -0 is 0
	}
	return v.Interface()
}

// meaning returns a timeline with the defaults that Validate leaves to its readers.
func meaning(t timeline.Timeline) timeline.Timeline {
	t.Segments = slices.Clone(t.Segments)
	for i, s := range t.Segments {
		focus := s.FocusOf()
		t.Segments[i].Fit, t.Segments[i].Focus = t.FitOf(s), &focus
	}
	if c := t.Canvas; c != nil && *c == (timeline.Canvas{Aspect: timeline.SourceAspect, Fit: timeline.Contain}) {
		t.Canvas = nil // the film's size is the same
	}
	return t
}
