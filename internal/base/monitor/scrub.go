package monitor

import (
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

// maxText bounds the text of a report, in bytes.
const maxText = 2000

// sqlState is the only part of a PostgreSQL error in a report. Its message and detail may quote values of the row.
type sqlState interface {
	error
	SQLState() string
}

// scrub returns the text of an error without personal data, secrets and values of rows. It drops the part of known
// errors that quotes data, and then everything that looks like an address, a token, an id, a path or a quotation.
func scrub(err error) string {
	text := err.Error()
	forEach(err, func(e error) {
		var replacement string
		switch known := e.(type) {
		case sqlState:
			replacement = "SQLSTATE " + known.SQLState()
		case *url.Error:
			replacement = known.Op + ": " + known.Err.Error()
		case *fs.PathError:
			replacement = known.Op + ": " + known.Err.Error()
		case *os.LinkError:
			replacement = known.Op + ": " + known.Err.Error()
		case *exec.Error:
			replacement = "run: " + known.Err.Error()
		default:
			return
		}
		text = strings.ReplaceAll(text, e.Error(), replacement)
	})
	for _, rule := range scrubbing {
		text = rule.pattern.ReplaceAllString(text, rule.with)
	}
	text = longWord.ReplaceAllStringFunc(text, func(word string) string {
		if strings.ContainsAny(word, "0123456789") {
			return "<token>"
		}
		return word // the name of a type or function
	})
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}

// scrubbing is applied in order, the widest patterns first.
var scrubbing = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"'<>]+`), "<url>"},
	{regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`"), "<quoted>"},
	{regexp.MustCompile(`'[^'\n]*'`), "<quoted>"},
	{regexp.MustCompile(`[^\s@,;:()<>=]+@[^\s@,;()<>=]+`), "<address>"},
	{regexp.MustCompile(`(?:/[^\s/:,;()<>]+){2,}/?`), "<path>"},
	{regexp.MustCompile(`\b(?:rnd-|sep-)?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b`), "<id>"},
	{regexp.MustCompile(`\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b`), "<host>"},
	{regexp.MustCompile(`\[?(?:[0-9a-fA-F]{0,4}:){2,7}[0-9a-fA-F]{0,4}(?:%\w+)?\]?(?::\d+)?`), "<host>"},
	{regexp.MustCompile(`\d{6,}`), "<number>"},
}

// longWord matches what may be a token, if it also has a digit.
var longWord = regexp.MustCompile(`[A-Za-z0-9_+/=.-]{20,}`)

// forEach calls visit with an error and everything it wraps.
func forEach(err error, visit func(error)) {
	if err == nil {
		return
	}
	visit(err)
	switch w := err.(type) {
	case interface{ Unwrap() error }:
		forEach(w.Unwrap(), visit)
	case interface{ Unwrap() []error }:
		for _, e := range w.Unwrap() {
			forEach(e, visit)
		}
	}
}
