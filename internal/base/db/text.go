package db

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible removes control characters, characters that change the direction of text, and invalid bytes.
func Visible(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return -1
		}
		return r
	}, s)
}

// Clean returns a client's text in a form that is safe to store (PostgreSQL refuses NUL) and to show: visible, trimmed,
// at most limit runes.
func Clean(s string, limit int) string {
	s = strings.TrimSpace(Visible(s))
	if r := []rune(s); len(r) > limit {
		s = string(r[:limit])
	}
	return s
}
