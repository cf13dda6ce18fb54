// Package cursor pages through a user's rows, newest first, by position and not
// by number: rows that come and go while somebody reads move nothing.
package cursor

import (
	"context"
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf8"

	"cutroom/internal/db"
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
	// The id becomes a parameter of a query: PostgreSQL takes text, and no NUL. That of
	// a ledger entry ends with what a store calls a transaction.
	if err != nil || ms < 0 || id == "" || !utf8.ValidString(id) || strings.ContainsRune(id, 0) {
		return Cursor{}, invalid
	}
	return Cursor{At: ms, ID: id}, nil
}

// Newest is the part of a query that makes its rows a page: those of $2 and $3, the
// place to begin at, and as many as $4. The columns are those of time and id.
func Newest(at, id string) string {
	return ` AND (` + at + ` < $2 OR (` + at + ` = $2 AND ` + id + ` < $3)) ORDER BY ` + at + ` DESC, ` + id + ` DESC LIMIT $4`
}

// List runs a query that ends with [Newest], for an owner who is $1, and returns
// the page and the cursor of the next one, "" at the end.
func List[T any](ctx context.Context, q db.Querier, query, owner string, p Page, scan func(db.Scanner) (T, error),
	of func(T) Cursor) (page []T, next string, err error) {
	// One row more tells whether there is another page.
	page, err = db.All(ctx, q, scan, query, owner, p.After.At, p.After.ID, p.Limit+1)
	if err != nil || len(page) <= p.Limit {
		return page, "", err
	}
	page = page[:p.Limit]
	return page, of(page[p.Limit-1]).String(), nil
}
