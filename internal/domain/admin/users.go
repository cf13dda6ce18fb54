package admin

import (
	"context"
	"strings"
	"unicode"
	"unicode/utf8"
)

// User is a row of the user list.
type User struct {
	UserID           string `json:"userId"`
	Email            Text   `json:"email"`
	Name             Text   `json:"name"`
	Provider         string `json:"provider"`
	Role             string `json:"role"`
	Balance          int64  `json:"balance"` // credits
	Renders          int64  `json:"totalRenders"`
	Separations      int64  `json:"totalSeparations"`
	SourceDurationMs int64  `json:"totalSourceDurationMs"` // over all jobs of the user
	CreatedAt        Time   `json:"createdAt"`
	LastActivityAt   Time   `json:"lastActivityAt"` // the last sign-in or submit
}

// maxSearch is the maximum length in characters of any text of a user; e-mail addresses are the longest.
const maxSearch = 320

// searchable reports whether a text may match anything. A database would refuse one that is not valid UTF-8.
func searchable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsRune(text, 0) && utf8.RuneCountInString(text) <= maxSearch
}

// matching returns the SQL condition on users that match a search: $3 is the search as a LIKE pattern, $4 as an id, $5
// unchanged.
func (r *Reports) matching(search string) string {
	fold := r.db.FoldASCII
	if strings.ContainsFunc(search, func(c rune) bool { return c > unicode.MaxASCII }) {
		fold = r.db.Fold
	}
	like := " LIKE (SELECT " + fold("CAST($3 AS TEXT)") + `) ESCAPE '\'`
	return ` AND (id = $4 OR ` + fold("email") + like + ` OR ` + fold("name") + like + `
		OR id IN (SELECT user_id FROM jobs WHERE id = $4)
		OR id IN (SELECT buyer_id FROM purchases WHERE order_id = $5) OR id IN (SELECT user_id FROM receipt_refusals WHERE order_id = $5))`
}

// Users returns a page of the users, newest activity first, and how many there are in all. A non-blank search keeps
// users whose e-mail or name contains it, in any case. It also finds a user by user id, job id, or the order number of
// a purchase or of a refused receipt.
func (r *Reports) Users(ctx context.Context, search string, page Page) (users []User, total int64, err error) {
	users = []User{}
	search = strings.TrimSpace(search)
	if !searchable(search) {
		return users, 0, nil
	}
	// Without a search, users are counted and paged in index order. A search must be evaluated only once.
	found, args := `NOT MATERIALIZED (SELECT id, last_active_at FROM users WHERE erasing_at IS NULL)`, []any{page.Limit, page.Offset}
	if search != "" {
		found = `MATERIALIZED (SELECT id, last_active_at FROM users WHERE erasing_at IS NULL` + r.matching(search) + `)`
		args = append(args, "%"+escapeLike(search)+"%", strings.ToLower(search), search)
	}
	// Select the page first, and count jobs only for its users. The query returns the total even for an empty page; the
	// rest of the row is then null.
	rows, err := list[userRow](ctx, r.db, `WITH found AS `+found+`,
		page AS (SELECT id FROM found ORDER BY last_active_at DESC, id LIMIT $1 OFFSET $2),
		counts AS (
			SELECT user_id, SUM(CASE kind WHEN 'render' THEN 1 ELSE 0 END) AS renders,
				SUM(CASE kind WHEN 'separation' THEN 1 ELSE 0 END) AS separations,
				CAST(SUM(source_duration_ms) AS BIGINT) AS source_ms
			FROM jobs WHERE user_id IN (SELECT id FROM page) GROUP BY user_id)
		SELECT t.found, COALESCE(u.id, '') AS user_id, u.email, u.name, COALESCE(u.provider, '') AS provider, COALESCE(u.role, '') AS role,
			COALESCE(b.balance, 0) AS balance, COALESCE(c.renders, 0) AS total_renders, COALESCE(c.separations, 0) AS total_separations,
			COALESCE(c.source_ms, 0) AS total_source_duration_ms, u.created_at, u.last_active_at AS last_activity_at
		FROM (SELECT COUNT(*) AS found FROM found) AS t LEFT JOIN (page p JOIN users u ON u.id = p.id) ON 1 = 1
		LEFT JOIN counts c ON c.user_id = u.id LEFT JOIN credit_balances b ON b.user_id = u.id
		ORDER BY u.last_active_at DESC, u.id`, args...)
	for _, row := range rows {
		total = row.Found
		if row.UserID != "" {
			users = append(users, row.User)
		}
	}
	return users, total, err
}

// userRow is a row of the user list, with the number of users found. The user is blank if the page is empty.
type userRow struct {
	User
	Found int64 `json:"found"`
}

// escapeLike escapes the wildcards of LIKE.
func escapeLike(s string) string {
	return strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(s)
}
