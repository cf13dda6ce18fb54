package credit

import (
	"context"
	"fmt"
	"strconv"
	"unicode/utf8"

	"cutroom/internal/db"
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
	owed int64
}

// settle uses up to this many credits to pay the debts of a user, the oldest first. It calls pay with each debt
// and the amount paid of it. The caller's transaction must hold the lock on the user's balance.
func settle(ctx context.Context, tx *db.Tx, userID string, credits int64, pay func(d debt, paid int64) error) error {
	debts, err := db.All(ctx, tx, func(row db.Scanner) (d debt, err error) {
		err = row.Scan(&d.Platform, &d.TransactionID, &d.owed)
		return d, err
	}, `SELECT platform, order_id, owed FROM purchases
		WHERE buyer_id = $1 AND owed > 0 ORDER BY created_at, transaction_hash`, userID)
	if err != nil {
		return fmt.Errorf("look for debts: %w", err)
	}
	for _, d := range debts {
		paid := min(credits, d.owed)
		if paid == 0 {
			break
		}
		if err := pay(d, paid); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE purchases SET owed = owed - $1 WHERE platform = $2 AND transaction_hash = $3`,
			paid, d.Platform, d.Hash()); err != nil {
			return fmt.Errorf("settle debt: %w", err)
		}
		credits -= paid
	}
	return nil
}

// settleFromRefund pays the user's debts from a job's refund.
func settleFromRefund(ctx context.Context, tx *db.Tx, userID string, refunded int64) error {
	return settle(ctx, tx, userID, refunded, func(d debt, paid int64) error {
		base := "reversal-" + d.ref() + "-"
		var earlier int
		if err := tx.QueryRow(ctx, `SELECT COUNT(*) FROM credit_ledger WHERE user_id = $1 AND kind = 'reversal' AND substr(ref_id, 1, $2) = $3`,
			userID, utf8.RuneCountInString(base), base).Scan(&earlier); err != nil {
			return fmt.Errorf("count settlements: %w", err)
		}
		entered, err := enter(ctx, tx, userID, kindReversal, base+strconv.Itoa(earlier+1), -paid)
		if err == nil && !entered {
			err = fmt.Errorf("settlement %s%d exists already", base, earlier+1)
		}
		return err
	})
}
