package credit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cutroom/internal/db"
	"cutroom/internal/fault"
	"cutroom/internal/upstream/receipt"
)

// Notify handles a store's notification about a sale. It moves no credits until the store confirms the
// notification. If the store does not answer, the next [Ledger.CheckPastSales] asks again, so the store need not
// repeat its notification.
func (l *Ledger) Notify(ctx context.Context, platform, bearer string, body []byte) error {
	store := l.stores[platform]
	if store == nil {
		return fault.NotFoundf("Not found")
	}
	notice, err := store.Notification(ctx, bearer, body)
	switch {
	case errors.Is(err, receipt.ErrNotHeeded):
		return fault.NotFoundf("Not found")
	case errors.Is(err, receipt.ErrForged):
		return fault.New(fault.Unauthorized, "invalid_signature").WithCause(err)
	case err != nil:
		return fault.Busy(time.Minute).WithCause(err)
	}
	t := notice.Transaction
	if t == (receipt.Transaction{}) {
		return nil
	}
	order := Order{platform, t.ID}
	if t.ID != "" {
		err := l.o.DB.QueryRow(ctx, `SELECT product_id FROM purchases WHERE platform = $1 AND transaction_hash = $2`,
			platform, order.Hash()).Scan(&t.ProductID)
		if db.IsNoRows(err) {
			return nil // never paid out
		}
		if err != nil {
			return fmt.Errorf("look for purchase: %w", err)
		}
	}
	if notice.Partial {
		l.o.Log.Warn("the store refunded part of a purchase; take the credits back by hand", "platform", platform, "order", t.ID)
		return nil
	}
	known, err := store.reversed(ctx, []receipt.Transaction{t})
	if err != nil {
		l.o.Log.Warn("the store does not confirm a notification yet", "platform", platform, "err", err)
		return l.recheckSoon(ctx, order)
	}
	return l.reverseAll(ctx, platform, known)
}

// reverseAll takes back the credits of those purchases that a store has refunded.
func (l *Ledger) reverseAll(ctx context.Context, platform string, refunded map[string]bool) error {
	for id, is := range refunded {
		if !is {
			continue
		}
		if err := l.reverse(ctx, Order{platform, id}); err != nil {
			return err
		}
	}
	return nil
}

func (s *limitedStore) reversed(ctx context.Context, asked []receipt.Transaction) (map[string]bool, error) {
	done, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return s.Reversed(ctx, asked)
}

func (l *Ledger) recheckSoon(ctx context.Context, o Order) error {
	if _, err := l.o.DB.Exec(ctx, `UPDATE purchases SET asked_at = 0 WHERE platform = $1 AND transaction_hash = $2`,
		o.Platform, o.Hash()); err != nil {
		return fmt.Errorf("mark purchase: %w", err)
	}
	return nil
}

// reverse takes back the credits of a purchase, once, as far as the balance covers them. The rest becomes the
// user's debt. It does nothing for a purchase that is unknown or already reversed.
func (l *Ledger) reverse(ctx context.Context, o Order) error {
	var buyer string // "" after the account's deletion
	var credits, owed int64
	var reversed bool
	err := l.o.DB.InTx(ctx, func(tx *db.Tx) (err error) {
		var paid bool
		if buyer, paid, err = o.spentBy(ctx, tx); err != nil || !paid {
			return err
		}
		// Every transaction that changes a debt locks the balance before the purchase, so a debt and a job's refund
		// neither miss each other nor deadlock.
		balance, err := lockBalance(ctx, tx, buyer)
		if err != nil {
			return err
		}
		err = tx.QueryRow(ctx, `UPDATE purchases SET reversed_at = now_ms(),
				owed = CASE WHEN buyer_id IS NULL OR credits <= $1 THEN 0 ELSE credits - $1 END
			WHERE platform = $2 AND transaction_hash = $3 AND reversed_at IS NULL
			RETURNING COALESCE(buyer_id, ''), credits, owed`, balance, o.Platform, o.Hash()).Scan(&buyer, &credits, &owed)
		reversed = err == nil
		if db.IsNoRows(err) {
			return nil
		}
		if err == nil && buyer != "" {
			_, err = enter(ctx, tx, buyer, kindReversal, "reversal-"+o.ref(), owed-credits)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("reverse purchase: %w", err)
	}
	if reversed {
		l.o.Log.Info("the store refunded a purchase; its credits were taken back",
			"platform", o.Platform, "order", o.TransactionID, "user", buyer, "taken", credits-owed, "owed", owed)
	}
	return nil
}

// How often the service asks the stores about past sales: about once a night for each purchase while a refund
// is likely, askBatch purchases at a time.
const (
	askAgain  = 20 * time.Hour
	askWithin = 90 * day
	askBatch  = 200
)

// CheckPastSales asks the stores which recent purchases they have refunded.
func (l *Ledger) CheckPastSales(ctx context.Context) error {
	var errs []error
	for platform, store := range l.stores {
		if err := l.checkPastSales(ctx, platform, store); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", platform, err))
		}
	}
	return errors.Join(errs...)
}

func (l *Ledger) checkPastSales(ctx context.Context, platform string, store *limitedStore) error {
	due, err := l.claimSales(ctx, platform)
	if err != nil || len(due) == 0 {
		return err
	}
	known, err := store.reversed(ctx, due)
	if err != nil {
		l.o.Log.Warn("the store did not answer about past sales", "platform", platform, "err", err)
	}
	if errors.Is(err, receipt.ErrUnavailable) {
		// The next run asks first about the purchases without an answer.
		for _, t := range due {
			if _, told := known[t.ID]; !told {
				if err := l.recheckSoon(context.WithoutCancel(ctx), Order{platform, t.ID}); err != nil {
					return err
				}
			}
		}
	}
	return l.reverseAll(ctx, platform, known)
}

// claimSales marks a batch of due purchases as asked, and returns it.
func (l *Ledger) claimSales(ctx context.Context, platform string) ([]receipt.Transaction, error) {
	ids, err := l.o.DB.ExecTexts(ctx, `UPDATE purchases SET asked_at = now_ms()
		WHERE platform = $1 AND transaction_hash IN (
			SELECT transaction_hash FROM purchases
			WHERE platform = $1 AND reversed_at IS NULL AND order_id IS NOT NULL
				AND created_at > now_ms() - $2 AND COALESCE(asked_at, created_at) <= now_ms() - $3
			ORDER BY COALESCE(asked_at, created_at) LIMIT $4`+l.o.DB.SkipLockedOf("purchases")+`)
		RETURNING order_id`, platform, askWithin.Milliseconds(), askAgain.Milliseconds(), askBatch)
	if err != nil {
		return nil, fmt.Errorf("claim past sales: %w", err)
	}
	due := make([]receipt.Transaction, len(ids))
	for i, id := range ids {
		due[i].ID = id
	}
	return due, nil
}
