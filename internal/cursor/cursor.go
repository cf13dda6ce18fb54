// Package cursor pages through a user's rows, newest first, by position and not
// by number: rows that come and go while somebody reads move nothing.
package cursor

import (
	"encoding/base64"
	"strconv"
	"strings"

	"cutroom/internal/fault"
)

// Cursor is a place in a list that is ordered by time and id, both falling.
type Cursor struct {
	At int64  // epoch milliseconds
	ID string // of the last row before the place
}

// Start is the place before the newest row.
var Start = Cursor{At: 1<<63 - 1}

// Page asks for the rows of one page.
type Page struct {
	After Cursor
	Limit int // most rows, >= 1
}

// maxText bounds what a client may send, in bytes: ours are shorter.
const maxText = 512

// String is the form for clients, to whom it means nothing.
func (c Cursor) String() string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(c.At, 10) + " " + c.ID))
}

// Parse reads what String wrote; anything else is invalid_cursor.
func Parse(text string) (Cursor, error) {
	invalid := fault.New(fault.Invalid, "invalid_cursor")
	if len(text) > maxText {
		return Cursor{}, invalid
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return Cursor{}, invalid.WithCause(err)
	}
	at, id, _ := strings.Cut(string(b), " ")
	ms, err := strconv.ParseInt(at, 10, 64)
	// The id becomes a parameter of a query: PostgreSQL takes no NUL.
	if err != nil || ms < 0 || id == "" || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return Cursor{}, invalid
	}
	return Cursor{At: ms, ID: id}, nil
}

// Cut is for a list that was read with one row more than a page may have: it
// returns the page, and the cursor of the next one, or "" at the end.
func Cut[T any](rows []T, limit int, of func(T) Cursor) (page []T, next string) {
	if len(rows) <= limit {
		return rows, ""
	}
	return rows[:limit], of(rows[limit-1]).String()
}
