package httpapi_test

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"cutroom/internal/apitest"
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
	if path := apitest.FieldOf(code); about != (path != "") || about && field != path {
		return false
	}
	return ok && code != "" && len(fields) == 0
}

// withField adds the member that an error body must have if it is about a field.
func withField(body string) string {
	var fields struct{ Error string }
	if json.Unmarshal([]byte(body), &fields) != nil || apitest.FieldOf(fields.Error) == "" {
		return body
	}
	path, _ := json.Marshal(apitest.FieldOf(fields.Error))
	return strings.TrimSuffix(body, "}") + `,"field":` + string(path) + "}"
}
