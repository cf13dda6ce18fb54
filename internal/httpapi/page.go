package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"cutroom/internal/account"
	"cutroom/internal/cursor"
	"cutroom/internal/fault"
)

// Bounds on the rows of a page.
const (
	defaultPage = 20
	maxPage     = 100
)

// historyPage parses limit and cursor.
func historyPage(r *http.Request) (cursor.Page, error) {
	p := cursor.Page{After: cursor.Start, Limit: defaultPage}
	query := r.URL.Query()
	if query.Has("limit") {
		n, err := strconv.ParseUint(query.Get("limit"), 10, 32) // rejects a sign
		if err != nil || n < 1 || n > maxPage {
			return p, fault.New(fault.Invalid, "invalid_limit")
		}
		p.Limit = int(n)
	}
	if query.Has("cursor") {
		var err error
		if p.After, err = cursor.Parse(query.Get("cursor")); err != nil {
			return p, err
		}
	}
	return p, nil
}

// history returns the endpoint of a page of one of the user's lists; the answer holds the list under name.
func history[T, B any](name string,
	list func(ctx context.Context, owner string, p cursor.Page) ([]T, string, error), body func(T) B) userHandler {
	return func(w http.ResponseWriter, r *http.Request, user account.Principal) error {
		page, err := historyPage(r)
		if err != nil {
			return err
		}
		rows, next, err := list(r.Context(), user.UserID, page)
		if err != nil {
			return err
		}
		bodies := make([]B, 0, len(rows))
		for _, row := range rows {
			bodies = append(bodies, body(row))
		}
		return ok(w, map[string]any{name: bodies, "nextCursor": orNull(next)})
	}
}

// orNull returns null for an empty text.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// positive returns null for an unknown number.
func positive(n int64) *int64 {
	if n <= 0 {
		return nil
	}
	return &n
}

// epochMs returns null for the zero time.
func epochMs(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	ms := t.UnixMilli()
	return &ms
}
