package db

import "strings"

// Clean makes a text from outside storable: valid UTF-8 without control
// characters (PostgreSQL refuses NUL), trimmed, at most limit runes.
func Clean(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	s = strings.TrimSpace(s)
	if r := []rune(s); len(r) > limit {
		s = string(r[:limit])
	}
	return s
}
