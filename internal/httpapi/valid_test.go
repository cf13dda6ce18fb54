package httpapi_test

import (
	"encoding/json"
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
	return ok && code != "" && len(fields) == 0
}
