package admin

import (
	"database/sql"
	"encoding/json"
	"time"
)

// Time is an instant in a report: an ISO-8601 string in UTC with milliseconds. All strings have the same width, so they
// sort by time. The zero value is null. The database stores epoch milliseconds.
type Time struct{ time.Time }

const isoMillis = "2006-01-02T15:04:05.000Z"

// Scan reads epoch milliseconds, or NULL.
func (t *Time) Scan(v any) error {
	var ms sql.NullInt64
	err := ms.Scan(v)
	*t = Time{}
	if ms.Valid {
		t.Time = time.UnixMilli(ms.Int64).UTC()
	}
	return err
}

// MarshalJSON writes the string, or null.
func (t Time) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte("null"), nil
	}
	return json.Marshal(t.UTC().Format(isoMillis))
}

// String formats the time for people, or returns "-".
func (t Time) String() string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

// Text is a text that may be missing: "" is null in the API and NULL in the database.
type Text string

// Scan reads a text, or NULL.
func (t *Text) Scan(v any) error {
	var text sql.NullString
	err := text.Scan(v)
	*t = Text(text.String)
	return err
}

// MarshalJSON writes the string, or null.
func (t Text) MarshalJSON() ([]byte, error) {
	if t == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(t))
}
