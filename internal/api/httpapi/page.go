package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"cutroom/internal/base/cursor"
	"cutroom/internal/base/fault"
	"cutroom/internal/domain/account"
)

// Bounds on the rows of a page.
const (
	defaultPage = 20
	maxPage     = 100
)

// historyPage parses limit and cursor.
func historyPage(r *http.Request) (cursor.Page, error) {
	p := cursor.Page{After: cursor.Start}
	query := r.URL.Query()
	var valid bool
	if p.Limit, valid = queryNumber(query, "limit", defaultPage, 1, maxPage); !valid {
		return p, fault.New(fault.Invalid, "invalid_limit")
	}
	if query.Has("cursor") {
		var err error
		if p.After, err = cursor.Parse(only(query, "cursor")); err != nil {
			return p, err
		}
	}
	return p, nil
}

// only returns a parameter of the query, and "" if it is absent or given more than once: then it is unclear which one
// is meant.
func only(query url.Values, name string) string {
	if len(query[name]) != 1 {
		return ""
	}
	return query.Get(name)
}

// queryNumber reads a number within bounds from the query. It is not valid if it is given twice or has a sign.
func queryNumber(query url.Values, name string, fallback, lowest, highest int) (n int, valid bool) {
	if len(query[name]) == 0 {
		return fallback, true
	}
	parsed, err := strconv.ParseUint(only(query, name), 10, 63)
	n = int(parsed)
	return n, err == nil && n >= lowest && n <= highest
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

// orNull returns null for the zero value: an empty text or an unknown number.
func orNull[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}

// epochMs returns null for the zero time.
func epochMs(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	ms := t.UnixMilli()
	return &ms
}
