package credit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"cutroom/internal/base/cursor"
	"cutroom/internal/base/db"
	"cutroom/internal/work/user"
)

// Product is a number of credits that a store sells.
type Product struct {
	ID      string `json:"productId"`
	Credits int64  `json:"credits"`
}

// Products lists the catalog, fewest credits first.
func (l *Ledger) Products() []Product {
	out := []Product{}
	for id, credits := range l.o.Catalog {
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
	Credits int64  // negative if they were taken
	JobID   string // of a charge and its refund, else ""
	At      time.Time

	ref string
}

// History returns a page of a user's ledger, newest first, and the cursor of the next page, "" at the end.
func (l *Ledger) History(ctx context.Context, userID string, p cursor.Page) (entries []Entry, next string, err error) {
	entries, next, err = cursor.List(ctx, l.o.DB, `SELECT kind, amount, ref_id, created_at FROM credit_ledger
		WHERE user_id = $1 AND `+user.Exists("user_id")+cursor.Newest("created_at", "ref_id"), userID, p, scanEntry,
		func(e Entry) cursor.Cursor { return cursor.Cursor{At: e.At.UnixMilli(), ID: e.ref} }, refPrefixes...)
	if err != nil {
		err = fmt.Errorf("list ledger: %w", err)
	}
	return entries, next, err
}

func scanEntry(row db.Scanner) (Entry, error) {
	var e Entry
	var at int64
	err := row.Scan(&e.Kind, &e.Credits, &e.ref, &at)
	e.At = time.UnixMilli(at)
	if e.Kind == kindConsume || e.Kind == kindRefund {
		e.JobID = strings.TrimPrefix(e.ref, e.Kind+"-")
	}
	return e, err
}
