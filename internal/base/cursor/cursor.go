// Package cursor pages through a user's rows, newest first. A page begins after a row instead of at an offset, so rows
// that are added or removed in the meantime shift nothing.
package cursor

import (
	"context"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
)

// Cursor is a position in a list that is ordered by time and id, both descending.
type Cursor struct {
	At int64  // epoch milliseconds
	ID string // of the last row before the position
}

// Start is the position before the newest row.
var Start = Cursor{At: 1<<63 - 1}

// Page asks for the rows of one page.
type Page struct {
	After Cursor
	Limit int // maximum number of rows, >= 1
}

var errInvalid = fault.New(fault.Invalid, "invalid_cursor")

// maxText is longer than any text that String returns, in bytes.
const maxText = 512

// String returns the opaque text that clients get.
func (c Cursor) String() string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(c.At, 10) + " " + c.ID))
}

// Parse reads what String wrote; anything else is invalid_cursor.
func Parse(text string) (Cursor, error) {
	if len(text) > maxText {
		return Cursor{}, errInvalid
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return Cursor{}, errInvalid.WithCause(err)
	}
	at, id, _ := strings.Cut(string(b), " ")
	ms, err := strconv.ParseInt(at, 10, 64)
	// The id becomes a parameter of a query, and PostgreSQL refuses NUL and invalid UTF-8. The id of a purchase ends
	// with the store's transaction id, which may be any text.
	if err != nil || ms < 0 || id == "" || !utf8.ValidString(id) || strings.ContainsRune(id, 0) {
		return Cursor{}, errInvalid
	}
	return Cursor{At: ms, ID: id}, nil
}

// Newest returns the end of a query that selects one page: up to $4 rows after the position $2, $3. Its arguments are
// the columns of time and id.
func Newest(at, id string) string {
	return ` AND (` + at + ` < $2 OR (` + at + ` = $2 AND ` + id + ` < $3)) ORDER BY ` + at + ` DESC, ` + id + ` DESC LIMIT $4`
}

// List runs a query that ends with [Newest], for the owner $1, and returns the page and the cursor of the next page, ""
// at the end. The ids of the list start with one of the prefixes; the cursor of another list is invalid_cursor.
func List[T any](ctx context.Context, q db.Querier, query, owner string, p Page, scan func(db.Scanner) (T, error),
	of func(T) Cursor, prefixes ...string) (page []T, next string, err error) {
	ours := func(prefix string) bool { return strings.HasPrefix(p.After.ID, prefix) }
	if p.After != Start && !slices.ContainsFunc(prefixes, ours) {
		return nil, "", errInvalid
	}
	// One extra row shows whether there is another page.
	page, err = db.All(ctx, q, scan, query, owner, p.After.At, p.After.ID, p.Limit+1)
	if err != nil || len(page) <= p.Limit {
		return page, "", err
	}
	page = page[:p.Limit]
	return page, of(page[p.Limit-1]).String(), nil
}
