package db

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible removes from a text what nobody sees in a list: control characters,
// those that turn the direction of the text around them, and bytes that are no
// text.
func Visible(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return -1
		}
		return r
	}, s)
}

// Clean makes a text from outside storable (PostgreSQL refuses NUL) and harmless
// to show: visible, trimmed, at most limit runes.
func Clean(s string, limit int) string {
	s = strings.TrimSpace(Visible(s))
	if r := []rune(s); len(r) > limit {
		s = string(r[:limit])
	}
	return s
}
