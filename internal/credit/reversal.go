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
	if t.ID != "" {
		err := l.db.QueryRow(ctx, `SELECT product_id FROM purchases WHERE platform = $1 AND transaction_hash = $2`,
			platform, TransactionHash(platform, t.ID)).Scan(&t.ProductID)
		if db.IsNoRows(err) {
			return nil // never paid out
		}
		if err != nil {
			return fmt.Errorf("look for purchase: %w", err)
		}
	}
	if notice.Partial {
		l.log.Warn("the store refunded part of a purchase; take the credits back by hand", "platform", platform, "order", t.ID)
		return nil
	}
	return l.confirm(ctx, platform, store, t)
}

func (l *Ledger) confirm(ctx context.Context, platform string, store *limitedStore, t receipt.Transaction) error {
	known, err := store.reversed(ctx, []receipt.Transaction{t})
	if err != nil {
		l.log.Warn("the store does not confirm a notification yet", "platform", platform, "err", err)
		return l.recheckSoon(ctx, platform, t.ID)
	}
	return l.reverseAll(ctx, platform, known)
}

// reverseAll takes back the credits of those purchases that a store has refunded.
func (l *Ledger) reverseAll(ctx context.Context, platform string, refunded map[string]bool) error {
	for id, is := range refunded {
		if !is {
			continue
		}
		if err := l.reverse(ctx, platform, id); err != nil {
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

func (l *Ledger) recheckSoon(ctx context.Context, platform, transaction string) error {
	if _, err := l.db.Exec(ctx, `UPDATE purchases SET asked_at = 0 WHERE platform = $1 AND transaction_hash = $2`,
		platform, TransactionHash(platform, transaction)); err != nil {
		return fmt.Errorf("mark purchase: %w", err)
	}
	return nil
}

// reverse takes back the credits of a purchase, once, as far as the balance covers them. The rest becomes the
// user's debt. It does nothing for a purchase that is unknown or already reversed.
func (l *Ledger) reverse(ctx context.Context, platform, transaction string) error {
	var taken, owed int64
	p, changed := sale{}, false
	err := l.db.InTx(ctx, func(tx *db.Tx) (err error) {
		changed = false
		if p, err = lockSale(ctx, tx, platform, transaction); err != nil || !p.found || p.reversed {
			return err
		}
		taken, owed = 0, 0
		if p.buyer != "" {
			taken = min(p.balance, p.credits)
			owed = p.credits - taken
			if _, err := enter(ctx, tx, p.buyer, kindReversal, reversalRef(platform, transaction), -taken); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, `UPDATE purchases SET reversed_at = now_ms(), owed = $1
			WHERE platform = $2 AND transaction_hash = $3`, owed, platform, TransactionHash(platform, transaction))
		changed = true
		return err
	})
	if err != nil {
		return fmt.Errorf("reverse purchase: %w", err)
	}
	if changed {
		l.log.Info("the store refunded a purchase; its credits were taken back",
			"platform", platform, "order", transaction, "user", p.buyer, "taken", taken, "owed", owed)
	}
	return nil
}

func reversalRef(platform, transaction string) string {
	return "reversal-" + platform + "-" + transaction
}

// sale is a purchase that a store may refund. Its zero value is an unknown purchase.
type sale struct {
	found, reversed bool
	buyer           string // "" after the account's deletion
	credits         int64
	balance         int64 // of the buyer
}

// lockSale reads a purchase and locks it and its buyer's balance. Every transaction that changes a debt locks
// the balance before the purchase, so a debt and a job's refund neither miss each other nor deadlock.
func lockSale(ctx context.Context, tx *db.Tx, platform, transaction string) (sale, error) {
	p, err := readSale(ctx, tx, platform, transaction, "")
	if err != nil || !p.found {
		return p, err
	}
	balance, err := lockBalance(ctx, tx, p.buyer)
	if err != nil {
		return sale{}, err
	}
	p, err = readSale(ctx, tx, platform, transaction, tx.ForUpdate())
	p.balance = balance
	return p, err
}

func readSale(ctx context.Context, tx *db.Tx, platform, transaction, locking string) (sale, error) {
	p := sale{found: true}
	err := tx.QueryRow(ctx, `SELECT COALESCE(buyer_id, ''), credits, CASE WHEN reversed_at IS NULL THEN 0 ELSE 1 END
		FROM purchases WHERE platform = $1 AND transaction_hash = $2`+locking,
		platform, TransactionHash(platform, transaction)).Scan(&p.buyer, &p.credits, &p.reversed)
	if db.IsNoRows(err) {
		return sale{}, nil
	}
	if err != nil {
		return sale{}, fmt.Errorf("read purchase: %w", err)
	}
	return p, nil
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
		l.log.Warn("the store did not answer about past sales", "platform", platform, "err", err)
	}
	if errors.Is(err, receipt.ErrUnavailable) {
		// The next run asks first about the purchases without an answer.
		for _, t := range due {
			if _, told := known[t.ID]; !told {
				if err := l.recheckSoon(context.WithoutCancel(ctx), platform, t.ID); err != nil {
					return err
				}
			}
		}
	}
	return l.reverseAll(ctx, platform, known)
}

// claimSales marks a batch of due purchases as asked, and returns it.
func (l *Ledger) claimSales(ctx context.Context, platform string) ([]receipt.Transaction, error) {
	ids, err := l.db.ExecTexts(ctx, `UPDATE purchases SET asked_at = now_ms()
		WHERE platform = $1 AND transaction_hash IN (
			SELECT transaction_hash FROM purchases
			WHERE platform = $1 AND reversed_at IS NULL AND order_id IS NOT NULL
				AND created_at > now_ms() - $2 AND COALESCE(asked_at, created_at) <= now_ms() - $3
			ORDER BY COALESCE(asked_at, created_at) LIMIT $4`+l.db.SkipLockedOf("purchases")+`)
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
