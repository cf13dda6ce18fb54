package credit

import (
	"context"
	"fmt"
	"strconv"

	"cutroom/internal/base/db"
)

// lockBalance returns a user's balance, 0 for an unknown user, and locks it until the transaction ends.
func lockBalance(ctx context.Context, tx *db.Tx, userID string) (int64, error) {
	var n int64
	err := tx.QueryRow(ctx, `SELECT balance FROM credit_balances WHERE user_id = $1`+tx.ForUpdate(), userID).Scan(&n)
	if err != nil && !db.IsNoRows(err) {
		return 0, fmt.Errorf("lock balance: %w", err)
	}
	return n, nil
}

// debt is what a user owes for one refunded purchase.
type debt struct {
	Order
	owed      int64
	reversals int // entries of the order's reversals so far
}

// settle uses up to this many credits to pay the debts of a user, the oldest first. With reverse it takes them from the
// balance, as reversals. The caller's transaction must hold the lock on the user's balance.
func settle(ctx context.Context, tx *db.Tx, userID string, credits int64, reverse bool) error {
	debts, err := db.All(ctx, tx, func(row db.Scanner) (d debt, err error) {
		err = row.Scan(&d.Platform, &d.TransactionID, &d.owed, &d.reversals)
		return d, err
	}, `SELECT platform, order_id, owed, reversals FROM purchases
		WHERE buyer_id = $1 AND owed > 0 ORDER BY created_at, transaction_hash`, userID)
	if err != nil {
		return fmt.Errorf("look for debts: %w", err)
	}
	for _, d := range debts {
		paid := min(credits, d.owed)
		if paid == 0 {
			break
		}
		taken := int64(0)
		if reverse {
			taken = paid
			if d.reversals, err = d.enterReversal(ctx, tx, userID, d.reversals, -paid); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, `UPDATE purchases SET owed = owed - $1, taken = taken + $2, reversals = $3
			WHERE platform = $4 AND transaction_hash = $5`, paid, taken, d.reversals, d.Platform, d.Hash()); err != nil {
			return fmt.Errorf("settle debt: %w", err)
		}
		credits -= paid
	}
	return nil
}

// enterReversal writes the next reversal entry of an order and returns the new number of them; earlier is the number so
// far. The first entry has the reference reversal-<platform>-<transaction>, the others append -<n>. The caller's
// transaction must hold the locks on balance and purchase.
func (o Order) enterReversal(ctx context.Context, tx *db.Tx, userID string, earlier int, amount int64) (int, error) {
	for n := earlier; ; n++ {
		ref := "reversal-" + o.ref()
		if n > 0 {
			ref += "-" + strconv.Itoa(n)
		}
		// Another order's number may end in -<n> and have the reference already.
		entered, err := enter(ctx, tx, userID, kindReversal, ref, amount)
		if err != nil || entered {
			return n + 1, err
		}
	}
}
