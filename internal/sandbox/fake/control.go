package fake

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
)

// controlCall describes a control call in the index.
type controlCall struct {
	Method  string            `json:"method"`
	Path    string            `json:"path"`
	What    string            `json:"what"`
	Example any               `json:"example,omitempty"` // a body
	Fields  map[string]string `json:"fields,omitempty"`  // all fields of the body, with their types
}

// HandleControl adds a control call. path follows ControlPrefix, and method is required: HandleControl("POST",
// "mint", …). The index shows what and example. example is a body of the type that the handler reads, or nil.
func (h *Host) HandleControl(method, path, what string, example any, handler func(*http.Request) (any, error)) {
	h.calls = append(h.calls, controlCall{Method: method, Path: ControlPrefix + path, What: what, Example: example, Fields: fields(example)})
	h.control.HandleFunc(method+" "+ControlPrefix+path, func(w http.ResponseWriter, r *http.Request) {
		answer, err := handler(r)
		if err != nil {
			WriteJSON(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
			return
		}
		if answer == nil {
			answer = map[string]bool{"ok": true}
		}
		WriteJSON(w, http.StatusOK, answer)
	})
}

// Control is HandleControl for a call whose body is of the example's type.
func Control[T any](h *Host, method, path, what string, example T, do func(context.Context, T) (any, error)) {
	h.HandleControl(method, path, what, example, func(r *http.Request) (any, error) {
		var body T
		if err := ReadControl(r, &body); err != nil {
			return nil, err
		}
		return do(r.Context(), body)
	})
}

// fields returns the JSON fields of a struct, with their types.
func fields(example any) map[string]string {
	t := reflect.TypeOf(example)
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	all := map[string]string{}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			all[name] = jsonType(f.Type)
		}
	}
	return all
}

// jsonType returns the JSON name of a Go type.
func jsonType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return jsonType(t.Elem())
	case reflect.Bool:
		return "boolean"
	case reflect.String:
		return "string"
	case reflect.Slice, reflect.Array:
		return "array"
	case reflect.Struct, reflect.Map:
		return "object"
	}
	return "number"
}

// ReadControl decodes the body of a control call into v. It refuses fields that v does not have, because a misspelt
// field would silently change nothing.
func ReadControl(r *http.Request, v any) error {
	body := json.NewDecoder(io.LimitReader(r.Body, 64<<20))
	body.DisallowUnknownFields()
	err := body.Decode(v)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s must be a JSON %s, not a %s", cmp.Or(wrong.Field, "the body"), jsonType(wrong.Type), wrong.Value)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read JSON body: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// serveIndex lists all control calls of the host, from the tables that route them.
func (h *Host) serveIndex(w http.ResponseWriter, _ *http.Request) {
	type step struct {
		Step  string `json:"step"`
		Route string `json:"route,omitempty"`
	}
	h.Faults.mu.Lock()
	steps := []step{{AnyStep, "every call"}}
	for _, name := range slices.Sorted(maps.Keys(h.Faults.steps)) {
		steps = append(steps, step{name, h.Faults.steps[name]})
	}
	h.Faults.mu.Unlock()
	listed := slices.Clone(kinds)
	for i := range listed {
		listed[i].Example.Step, listed[i].Example.Kind, listed[i].Example.Times = AnyStep, listed[i].Kind, 1
	}
	WriteJSON(w, http.StatusOK, map[string]any{"calls": h.calls, "steps": steps, "kinds": listed})
}
