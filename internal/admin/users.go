package admin

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
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

// maxSearch is the length in characters of the longest text that a user can
// have: an e-mail address.
const maxSearch = 320

// matching is the condition on users that both queries of Users share. $1 is
// the search as a LIKE pattern, $2 as an id, $3 as it came; an empty $2 matches
// everybody.
func (r *Reports) matching() string {
	like := " LIKE " + r.db.Fold("CAST($1 AS TEXT)") + ` ESCAPE '\'`
	return `erasing_at IS NULL AND ($2 = '' OR id = $2 OR ` + r.db.Fold("email") + like + ` OR ` + r.db.Fold("name") + like + `
		OR id IN (SELECT user_id FROM render_jobs WHERE id = $2) OR id IN (SELECT user_id FROM separation_jobs WHERE id = $2)
		OR id IN (SELECT buyer_id FROM purchases WHERE order_id = $3)
		OR id IN (SELECT user_id FROM credit_ledger WHERE ref_id IN ('platform_a-' || $3, 'platform_b-' || $3)))`
}

// Users returns a page of the users, newest activity first, and how many there
// are in all. A search that is not blank keeps those whose e-mail or name
// contains it, in any case, and the one whose id it is, or the id of a job or
// the order number of a purchase.
func (r *Reports) Users(ctx context.Context, search string, page Page) (users []User, total int64, err error) {
	users = []User{}
	search = strings.TrimSpace(search)
	if !utf8.ValidString(search) || strings.ContainsRune(search, 0) || utf8.RuneCountInString(search) > maxSearch {
		return users, 0, nil // nobody's, and text that a database refuses
	}
	pattern, id := "%"+escapeLike(search)+"%", strings.ToLower(search)
	err = r.db.QueryRow(ctx, `SELECT COUNT(*) FROM users WHERE `+r.matching(), pattern, id, search).Scan(&total)
	if err != nil {
		return nil, 0, fmt.Errorf("count users: %w", err)
	}
	// The page is cut first, and jobs are counted for its users only.
	err = each(ctx, r.db, func(rows *sql.Rows) error {
		var u User
		err := rows.Scan(&u.UserID, &u.Email, &u.Name, &u.Provider, &u.Role, &u.Balance, &u.Renders, &u.Separations,
			&u.SourceDurationMs, &u.CreatedAt, &u.LastActivityAt)
		users = append(users, u)
		return err
	}, `WITH page AS (
			SELECT * FROM users WHERE `+r.matching()+` ORDER BY last_active_at DESC, id LIMIT $4 OFFSET $5),
		jobs AS (
			SELECT user_id, 1 AS render, source_duration_ms FROM render_jobs WHERE user_id IN (SELECT id FROM page)
			UNION ALL SELECT user_id, 0, source_duration_ms FROM separation_jobs WHERE user_id IN (SELECT id FROM page)),
		counts AS (
			SELECT user_id, SUM(render) AS renders, SUM(1 - render) AS separations, SUM(source_duration_ms) AS source_ms
			FROM jobs GROUP BY user_id)
		SELECT p.id, p.email, p.name, p.provider, p.role, COALESCE(b.balance, 0), COALESCE(c.renders, 0),
			COALESCE(c.separations, 0), CAST(COALESCE(c.source_ms, 0) AS BIGINT), p.created_at, p.last_active_at
		FROM page p LEFT JOIN counts c ON c.user_id = p.id LEFT JOIN credit_balances b ON b.user_id = p.id
		ORDER BY p.last_active_at DESC, p.id`, pattern, id, search, page.Limit, page.Offset)
	if err != nil {
		return nil, 0, fmt.Errorf("list users: %w", err)
	}
	return users, total, nil
}

// escapeLike escapes the wildcards of LIKE.
func escapeLike(s string) string {
	return strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(s)
}
