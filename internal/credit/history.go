package credit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"cutroom/internal/cursor"
)

// Product is what a store sells.
type Product struct {
	ID      string
	Credits int64
}

// Products lists the catalog, fewest credits first.
func (l *Ledger) Products() []Product {
	var out []Product
	for id, credits := range l.catalog {
		out = append(out, Product{id, credits})
	}
	slices.SortFunc(out, func(a, b Product) int {
		return cmp.Or(cmp.Compare(a.Credits, b.Credits), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// Entry is a change of a balance, as its owner sees it.
type Entry struct {
	Kind    string
	Credits int64  // below zero where they were taken
	JobID   string // of a charge and its refund, else ""
	At      time.Time

	ref string
}

// History returns a page of a user's ledger, newest first, and the cursor of the
// next page, "" at the end.
func (l *Ledger) History(ctx context.Context, userID string, p cursor.Page) (entries []Entry, next string, err error) {
	rows, err := l.db.Query(ctx, `SELECT kind, amount, ref_id, created_at FROM credit_ledger
		WHERE user_id = $1 AND (created_at < $2 OR (created_at = $2 AND ref_id < $3))
		ORDER BY created_at DESC, ref_id DESC LIMIT $4`, userID, p.After.At, p.After.ID, p.Limit+1)
	if err != nil {
		return nil, "", fmt.Errorf("list ledger: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var e Entry
		var at int64
		if err := rows.Scan(&e.Kind, &e.Credits, &e.ref, &at); err != nil {
			return nil, "", fmt.Errorf("list ledger: %w", err)
		}
		e.At = time.UnixMilli(at)
		if e.Kind == kindConsume || e.Kind == kindRefund {
			e.JobID = strings.TrimPrefix(e.ref, e.Kind+"-")
		}
		entries = append(entries, e)
	}
	if err := rows.Err(); err != nil {
		return nil, "", fmt.Errorf("list ledger: %w", err)
	}
	entries, next = cursor.Cut(entries, p.Limit, func(e Entry) cursor.Cursor { return cursor.Cursor{At: e.At.UnixMilli(), ID: e.ref} })
	return entries, next, nil
}
