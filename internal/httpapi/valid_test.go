package httpapi_test

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// validError reports whether a body is the error body: a JSON object with an error and,
// at most, a detail.
func validError(body []byte) bool {
	var fields map[string]any
	if !utf8.Valid(body) || json.Unmarshal(body, &fields) != nil {
		return false
	}
	code, ok := fields["error"].(string)
	delete(fields, "error")
	if detail, given := fields["detail"]; given {
		if s, isText := detail.(string); !isText || s == "" {
			return false
		}
		delete(fields, "detail")
	}
	field, about := fields["field"]
	delete(fields, "field")
	if path := pathOf(code); about != (path != "") || about && field != path {
		return false
	}
	return ok && code != "" && len(fields) == 0
}

// aboutNoField are the beginnings of sentences about a rule that concerns no single field.
var aboutNoField = []string{"segments or videoDurationMs is", "Idempotency-Key must", "The ", "the ", "a text field ", "parts are ",
	"User not found", "Job not found", "stem not found", "render job not found", "separation job not found", "mock stem not found",
	"Not found", "Method not allowed", "Internal server error"}

// pathOf returns the path of the field that an error's sentence is about, or "".
func pathOf(sentence string) string {
	end := strings.IndexAny(sentence, " :")
	if end < 0 || slices.ContainsFunc(aboutNoField, func(start string) bool { return strings.HasPrefix(sentence, start) }) {
		return "" // a code, or about no field
	}
	return sentence[:end]
}

// withField adds the member that an error body must have if it is about a field.
func withField(body string) string {
	var fields struct{ Error string }
	if json.Unmarshal([]byte(body), &fields) != nil || pathOf(fields.Error) == "" {
		return body
	}
	path, _ := json.Marshal(pathOf(fields.Error))
	return strings.TrimSuffix(body, "}") + `,"field":` + string(path) + "}"
}
