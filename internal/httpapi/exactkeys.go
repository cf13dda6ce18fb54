package httpapi

import (
	"cmp"
	"encoding/json"
	"reflect"
	"strings"
	"sync"
)

// maxItems is more than any list of the API may have, and more than fit into a
// body with anything in them. What lies beyond is not looked at: the first of
// them are too many already.
const maxItems = 10_000

// exactKeys returns a JSON value without the keys that name no field of the type
// t letter by letter. encoding/json would take "productid" for productId, but
// the API's names are exact, and any other key is ignored. A value that does not
// have the shape of t stays as it is: decoding it says what is wrong.
func exactKeys(value json.RawMessage, t reflect.Type) json.RawMessage {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return value
	}
	switch t.Kind() {
	case reflect.Struct:
		var object map[string]json.RawMessage
		if json.Unmarshal(value, &object) != nil || object == nil {
			return value
		}
		known := make(map[string]json.RawMessage, len(object))
		for name, field := range wireFields(t) {
			if v, given := object[name]; given {
				known[name] = exactKeys(v, field)
			}
		}
		return remade(known, value)
	case reflect.Slice, reflect.Array:
		var list []json.RawMessage
		if json.Unmarshal(value, &list) != nil || list == nil {
			return value
		}
		list = list[:min(len(list), maxItems)]
		for i := range list {
			list[i] = exactKeys(list[i], t.Elem())
		}
		return remade(list, value)
	case reflect.Map:
		var object map[string]json.RawMessage
		if json.Unmarshal(value, &object) != nil || object == nil {
			return value
		}
		for name := range object {
			object[name] = exactKeys(object[name], t.Elem())
		}
		return remade(object, value)
	}
	return value
}

// remade is the JSON of parts, which came out of value and are valid as it is.
func remade(parts any, value json.RawMessage) json.RawMessage {
	b, err := json.Marshal(parts)
	if err != nil {
		return value
	}
	return b
}

// knownFields keeps what wireFields found, by reflect.Type: a list asks for every
// item of it.
var knownFields sync.Map

// wireFields are the fields of a struct by their names on the wire, those of
// embedded structs included.
func wireFields(t reflect.Type) map[string]reflect.Type {
	if known, ok := knownFields.Load(t); ok {
		return known.(map[string]reflect.Type)
	}
	fields := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		tag := f.Tag.Get("json")
		name, _, _ := strings.Cut(tag, ",")
		if tag == "-" || !f.IsExported() || f.Anonymous && name == "" {
			continue
		}
		fields[cmp.Or(name, f.Name)] = f.Type
	}
	knownFields.Store(t, fields)
	return fields
}
