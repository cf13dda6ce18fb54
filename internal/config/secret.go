package config

import (
	"fmt"
	"io"
)

// redacted is how every Secret is printed.
const redacted = "***"

// Secret is a value that must not appear in a log, an error or a report. It always prints as "***"; only Reveal
// returns the value. The zero Secret is blank.
type Secret struct {
	// A pointer, because fmt prints the unexported fields of a struct without calling their methods: for a pointer it
	// prints only the address.
	value *string
}

// NewSecret wraps a value.
func NewSecret(value string) Secret { return Secret{value: &value} }

// Reveal returns the value. Call it only where the value is used.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// IsBlank reports whether there is no value.
func (s Secret) IsBlank() bool { return s.Reveal() == "" }

// String returns "***".
func (s Secret) String() string { return redacted }

// Format writes "***" for every verb, including %#v, %d and %x.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) } // fmt.State cannot report the error

// MarshalText returns "***", for logs, JSON and other encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
