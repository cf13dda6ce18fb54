package httpapi

import (
	"net/http"
	"strings"
)

// preference returns the first value of a preference of the request (RFC 7240), or "".
func preference(r *http.Request, name string) string {
	for _, list := range r.Header.Values("Prefer") {
		for _, p := range splitHeader(list, ',') {
			given, value, _ := strings.Cut(splitHeader(p, ';')[0], "=")
			if strings.EqualFold(strings.TrimSpace(given), name) {
				return strings.Trim(strings.TrimSpace(value), `"`)
			}
		}
	}
	return ""
}

// strictHandling is the preference that makes unknown keys an error.
const strictHandling = "handling=strict"

func prefersStrict(r *http.Request) bool {
	return strings.EqualFold(preference(r, "handling"), "strict")
}

// splitHeader splits a header at separators outside quotes.
func splitHeader(header string, separator byte) []string {
	var fields []string
	quoted, start := false, 0
	for i := 0; i < len(header); i++ {
		switch {
		case header[i] == '\\' && quoted:
			i++
		case header[i] == '"':
			quoted = !quoted
		case header[i] == separator && !quoted:
			fields, start = append(fields, header[start:i]), i+1
		}
	}
	return append(fields, header[start:])
}
