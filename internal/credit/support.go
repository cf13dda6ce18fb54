package credit

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"cutroom/internal/db"
)

// Support writes what support gives (amount > 0) or takes back (amount < 0)
// inside the caller's transaction, once under the reference id: the ledger
// names it support-<id>. It reports whether the entry is new. Taking more than
// the balance holds is insufficient_credits. What is taken settles what the
// user owes, the oldest debt first.
func Support(ctx context.Context, tx *db.Tx, userID, id string, amount int64) (bool, error) {
	fresh, err := enter(ctx, tx, userID, kindSupport, "support-"+id, amount)
	if err != nil || !fresh {
		return false, err
	}
	if amount >= 0 {
		return true, nil
	}
	return true, settle(ctx, tx, userID, -amount)
}

// settle counts credits that were taken back against what the user owes.
func settle(ctx context.Context, tx *db.Tx, userID string, credits int64) error {
	sales, err := Purchases(ctx, tx, userID)
	if err != nil {
		return err
	}
	for i := len(sales) - 1; i >= 0 && credits > 0; i-- {
		paid := min(credits, sales[i].Owed)
		if paid == 0 {
			continue
		}
		if _, err := tx.Exec(ctx, `UPDATE purchases SET owed = owed - $1 WHERE platform = $2 AND transaction_hash = $3`,
			paid, sales[i].Platform, sales[i].hash); err != nil {
			return fmt.Errorf("settle debt: %w", err)
		}
		credits -= paid
	}
	return nil
}

// Sale is a purchase that was paid out.
type Sale struct {
	Platform, ProductID string
	// OrderID is the store's number of the purchase, "" for one that was paid
	// out before order numbers were kept.
	OrderID  string
	Credits  int64
	BoughtAt time.Time
	// ReversedAt is when the store's refund was noticed, zero while there is none.
	ReversedAt time.Time
	// Owed is the part of a reversed purchase that had been spent already and
	// was not settled since.
	Owed int64

	hash string
}

// Purchases returns what a user has bought, the newest first.
func Purchases(ctx context.Context, q db.Querier, userID string) ([]Sale, error) {
	out, err := db.All(ctx, q, func(row db.Scanner) (s Sale, err error) {
		var bought, reversed int64
		err = row.Scan(&s.Platform, &s.ProductID, &s.OrderID, &s.Credits, &bought, &reversed, &s.Owed, &s.hash)
		s.BoughtAt = time.UnixMilli(bought)
		if reversed > 0 {
			s.ReversedAt = time.UnixMilli(reversed)
		}
		return s, err
	}, `SELECT platform, product_id, COALESCE(order_id, ''), credits, created_at,
			COALESCE(reversed_at, 0), owed, transaction_hash
		FROM purchases WHERE buyer_id = $1 ORDER BY created_at DESC, transaction_hash`, userID)
	if err != nil {
		return nil, fmt.Errorf("list purchases: %w", err)
	}
	return out, nil
}

// supportSpace is the namespace of the ids of entries that are bound to a job.
var supportSpace = uuid.MustParse("5b0c2a3e-5e8d-4d43-9d0a-6a1a3f1f7c55")

// SupportID is the id of a new entry of support. Of those bound to a job there
// is one: the ledger's unique reference refuses a second.
func SupportID(jobID string) string {
	if jobID == "" {
		return uuid.NewString()
	}
	return uuid.NewSHA1(supportSpace, []byte(jobID)).String()
}
