// Package fault defines the failures that a client may see, and logs those that last ([Outage]).
//
// The package that knows the reason for a failure returns an [Error]. Every other error is internal and reaches the
// client as a bare 500. This package knows nothing of HTTP: a table in httpapi turns a [Kind] into a status.
package fault

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Kind is the class of an Error. It determines the HTTP status.
type Kind int

// The kinds, with the status that httpapi sends.
const (
	Internal        Kind = iota // 500
	Invalid                     // 400
	Unauthorized                // 401
	PaymentRequired             // 402
	Forbidden                   // 403
	NotFound                    // 404
	TooLarge                    // 413
	Encoded                     // 415
	RateLimited                 // 429
	BadGateway                  // 502
	Unavailable                 // 503
)

// Error is a failure that the client may see.
type Error struct {
	Kind     Kind
	Code     string // wire "error": a machine code; "" where the API defines none
	Sentence string // wire "error" where there is no code
	Detail   string // wire "detail"; never an upstream's text, a path or a stack
	Field    string // wire "field": the path with which a sentence about one field begins
	Reason   Reason // why a job failed; "" for a failure outside a job
	// Shortfall is what insufficient_credits adds to the body; nil otherwise.
	Shortfall *Shortfall
	// RetryAfter is how long the client should wait, for RateLimited; 0 omits the header.
	RetryAfter time.Duration
	Err        error // cause, for the log only
}

// Shortfall says how many credits a request needs, and how many its account has.
type Shortfall struct{ Required, Balance int64 }

// Answer returns the wire's "error": the machine code, or else the sentence.
func (e *Error) Answer() string { return cmp.Or(e.Code, e.Sentence) }

// New returns a failure of the given kind with a machine code.
func New(kind Kind, code string) *Error { return &Error{Kind: kind, Code: code} }

// Busy returns a 503 for a client that should repeat its request after that time.
func Busy(after time.Duration) *Error {
	return &Error{Kind: Unavailable, Code: "unavailable", RetryAfter: after}
}

// Sentencef returns a failure of the given kind for which the API defines no code. If an Invalid or NotFound
// sentence begins with the path of a field, as in "segments[1].speedScale must be > 0" and "assetKey: the asset
// does not exist", Field is that path.
func Sentencef(kind Kind, format string, args ...any) *Error {
	e := &Error{Kind: kind, Sentence: fmt.Sprintf(format, args...)}
	if kind == Invalid || kind == NotFound {
		e.Field = FieldOf(e.Sentence)
	}
	return e
}

// FieldOf returns the path of a field with which a sentence begins, or "".
func FieldOf(sentence string) string {
	if m := aboutField.FindStringSubmatch(sentence); m != nil {
		return m[1]
	}
	return ""
}

// aboutField matches a sentence that begins with the path of a field.
var aboutField = regexp.MustCompile(`^([a-z][A-Za-z0-9_]*(?:\[\d+\]|\.[a-z][A-Za-z0-9]*)*)(?::| (?:must|is|has|names) )`)

// Invalidf returns a failed input validation (400) with a sentence that begins with the field.
func Invalidf(format string, args ...any) *Error {
	return Sentencef(Invalid, format, args...)
}

// NotFoundf returns a 404 with a sentence.
func NotFoundf(format string, args ...any) *Error {
	return Sentencef(NotFound, format, args...)
}

// WithDetail returns a copy of e with the detail set.
func (e *Error) WithDetail(format string, args ...any) *Error {
	c := *e
	c.Detail = fmt.Sprintf(format, args...)
	return &c
}

// WithCause returns a copy of e that carries cause for the log.
func (e *Error) WithCause(cause error) *Error {
	c := *e
	c.Err = cause
	return &c
}

// Error describes the failure for the log, cause included.
func (e *Error) Error() string {
	s := e.Answer()
	if e.Detail != "" {
		s += " (" + e.Detail + ")"
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// maxCause bounds the stored text of an error, in bytes. It is enough for a chain of causes and the last lines of a
// program's output.
const maxCause = 4000

// Cause returns the text of an error in a form that a database accepts. It is for support, never for a client.
func Cause(err error) string {
	if err == nil {
		return ""
	}
	text := strings.ReplaceAll(err.Error(), "\x00", "")
	return strings.ToValidUTF8(text[:min(len(text), maxCause)], "")
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is an Error of the same kind, code, sentence and reason, so that errors.Is works on copies
// made by WithDetail and WithCause.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Kind == e.Kind && t.Code == e.Code && t.Sentence == e.Sentence && t.Reason == e.Reason
}

// As returns the Error in err's chain, or nil.
func As(err error) *Error {
	e, _ := errors.AsType[*Error](err)
	return e
}
