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

// Notify takes what a store sends about its sales. The claim itself moves
// nothing: the store is asked whether it is true. When that fails, the purchase
// is asked about at the next [Ledger.AskAboutSales] instead of having the store
// repeat.
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
		f := fault.New(fault.Unavailable, "unavailable").WithCause(err)
		f.RetryAfter = time.Minute
		return f
	}
	t := notice.Transaction
	if t == (receipt.Transaction{}) {
		return nil
	}
	if t.ID != "" {
		err := l.db.QueryRow(ctx, `SELECT product_id FROM purchases WHERE platform = $1 AND transaction_hash = $2`,
			platform, transactionHash(platform, t.ID)).Scan(&t.ProductID)
		if db.IsNoRows(err) {
			return nil // never paid out
		}
		if err != nil {
			return fmt.Errorf("look for purchase: %w", err)
		}
	}
	if notice.Partial {
		l.log.Warn("a part of a purchase was refunded; take its credits back by hand", "platform", platform, "order", t.ID)
		return nil
	}
	return l.askBack(ctx, platform, store, t, notice.Reinstated)
}

func (l *Ledger) askBack(ctx context.Context, platform string, store *askedStore, t receipt.Transaction, reinstated bool) error {
	known, err := store.reversed(ctx, []receipt.Transaction{t})
	if err != nil {
		l.log.Warn("a store's notification cannot be confirmed yet", "platform", platform, "err", err)
		return l.askSoon(ctx, platform, t.ID)
	}
	for id, reversed := range known {
		switch {
		case reversed:
			err = l.reverse(ctx, platform, id)
		case reinstated && id == t.ID:
			err = l.reinstate(ctx, platform, id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *askedStore) reversed(ctx context.Context, asked []receipt.Transaction) (map[string]bool, error) {
	done, err := s.turn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return s.Reversed(ctx, asked)
}

func (l *Ledger) askSoon(ctx context.Context, platform, transaction string) error {
	if _, err := l.db.Exec(ctx, `UPDATE purchases SET asked_at = 0 WHERE platform = $1 AND transaction_hash = $2`,
		platform, transactionHash(platform, transaction)); err != nil {
		return fmt.Errorf("mark purchase: %w", err)
	}
	return nil
}

// reverse takes back what a purchase granted, as far as the balance holds it,
// once. The rest is owed. A purchase that is unknown, or reversed already, stays
// as it is.
func (l *Ledger) reverse(ctx context.Context, platform, transaction string) error {
	var p reversible
	var taken, owed int64
	fresh := false
	err := l.db.InTx(ctx, func(tx *db.Tx) (err error) {
		fresh, taken, owed = false, 0, 0
		if p, err = lockPurchase(ctx, tx, platform, transaction); err != nil || !p.found || p.reversed {
			return err
		}
		if p.buyer != "" {
			have, err := lockBalance(ctx, tx, p.buyer)
			if err != nil {
				return err
			}
			taken = min(have, p.credits)
			fresh, err := enter(ctx, tx, p.buyer, kindReversal, reversalRef(platform, transaction), -taken)
			if err != nil || !fresh {
				return err // it was taken back and given again before: that is once
			}
			owed = p.credits - taken
		}
		fresh = true
		_, err = tx.Exec(ctx, `UPDATE purchases SET reversed_at = now_ms(), owed = $1 WHERE platform = $2 AND transaction_hash = $3`,
			owed, platform, transactionHash(platform, transaction))
		if err != nil {
			return fmt.Errorf("mark purchase as reversed: %w", err)
		}
		return nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("reverse purchase: %w", err)
	case fresh:
		l.log.Info("a store took a purchase back", "platform", platform, "order", transaction, "user", p.buyer, "taken", taken, "owed", owed)
	case p.found && !p.reversed:
		l.log.Warn("a store took a purchase back a second time; settle it by hand", "platform", platform, "order", transaction, "user", p.buyer)
	}
	return nil
}

// reinstate gives back what a reversal took, once, because the store has taken
// its refund back. A debt that was not settled goes.
func (l *Ledger) reinstate(ctx context.Context, platform, transaction string) error {
	var p reversible
	fresh := false
	err := l.db.InTx(ctx, func(tx *db.Tx) (err error) {
		fresh = false
		if p, err = lockPurchase(ctx, tx, platform, transaction); err != nil || !p.reversed {
			return err
		}
		if p.buyer != "" {
			fresh, err := enter(ctx, tx, p.buyer, kindReversal, reversalRef(platform, transaction)+"-undone", p.credits-p.owed)
			if err != nil || !fresh {
				return err
			}
		}
		fresh = true
		_, err = tx.Exec(ctx, `UPDATE purchases SET reversed_at = NULL, owed = 0 WHERE platform = $1 AND transaction_hash = $2`,
			platform, transactionHash(platform, transaction))
		if err != nil {
			return fmt.Errorf("mark purchase as standing: %w", err)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("reinstate purchase: %w", err)
	}
	if fresh {
		l.log.Info("a store took its refund back", "platform", platform, "order", transaction, "user", p.buyer, "given", p.credits-p.owed)
	}
	return nil
}

func reversalRef(platform, transaction string) string {
	return "reversal-" + platform + "-" + transaction
}

// reversible is a purchase as a reversal sees it.
type reversible struct {
	found, reversed bool
	buyer           string // "" after the account's deletion
	credits, owed   int64
}

func lockPurchase(ctx context.Context, tx *db.Tx, platform, transaction string) (reversible, error) {
	p := reversible{found: true}
	err := tx.QueryRow(ctx, `SELECT COALESCE(buyer_id, ''), credits, owed, CASE WHEN reversed_at IS NULL THEN 0 ELSE 1 END
		FROM purchases WHERE platform = $1 AND transaction_hash = $2`+tx.ForUpdate(),
		platform, transactionHash(platform, transaction)).Scan(&p.buyer, &p.credits, &p.owed, &p.reversed)
	if db.IsNoRows(err) {
		return reversible{}, nil
	}
	if err != nil {
		return reversible{}, fmt.Errorf("lock purchase: %w", err)
	}
	return p, nil
}

func lockBalance(ctx context.Context, tx *db.Tx, userID string) (int64, error) {
	var n int64
	err := tx.QueryRow(ctx, `SELECT balance FROM credit_balances WHERE user_id = $1`+tx.ForUpdate(), userID).Scan(&n)
	if err != nil && !db.IsNoRows(err) {
		return 0, fmt.Errorf("lock balance: %w", err)
	}
	return n, nil
}

// How the stores are asked about past sales: each purchase about once a night,
// for as long as a refund is likely, so many at a time.
const (
	askAgain  = 20 * time.Hour
	askWithin = 90 * day
	askBatch  = 200
)

// AskAboutSales asks the stores whether recent purchases still stand: each purchase
// once a night, and a bounded number at each call.
func (l *Ledger) AskAboutSales(ctx context.Context) error {
	var errs []error
	for platform, store := range l.stores {
		if err := l.askAboutSales(ctx, platform, store); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", platform, err))
		}
	}
	return errors.Join(errs...)
}

func (l *Ledger) askAboutSales(ctx context.Context, platform string, store *askedStore) error {
	due, err := l.claimSales(ctx, platform)
	if err != nil || len(due) == 0 {
		return err
	}
	known, err := store.reversed(ctx, due)
	if err != nil {
		l.log.Warn("a store did not tell about past sales", "platform", platform, "err", err)
	}
	if errors.Is(err, receipt.ErrUnavailable) {
		// What could not be asked stays first in line for the same night.
		for _, t := range due {
			if _, told := known[t.ID]; !told {
				if err := l.askSoon(context.WithoutCancel(ctx), platform, t.ID); err != nil {
					return err
				}
			}
		}
	}
	for id, reversed := range known {
		if !reversed {
			continue
		}
		if err := l.reverse(ctx, platform, id); err != nil {
			return err
		}
	}
	return nil
}

// claimSales takes the purchases that are due.
func (l *Ledger) claimSales(ctx context.Context, platform string) ([]receipt.Transaction, error) {
	var due []receipt.Transaction
	err := l.db.InTx(ctx, func(tx *db.Tx) (err error) {
		due, err = db.All(ctx, tx, func(row db.Scanner) (t receipt.Transaction, err error) {
			err = row.Scan(&t.ID)
			return t, err
		}, `UPDATE purchases SET asked_at = now_ms()
			WHERE platform = $1 AND transaction_hash IN (
				SELECT transaction_hash FROM purchases
				WHERE platform = $1 AND reversed_at IS NULL AND order_id IS NOT NULL
					AND created_at > now_ms() - $2 AND COALESCE(asked_at, created_at) <= now_ms() - $3
				ORDER BY COALESCE(asked_at, created_at) LIMIT $4`+tx.SkipLocked()+`)
			RETURNING order_id`, platform, askWithin.Milliseconds(), askAgain.Milliseconds(), askBatch)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim past sales: %w", err)
	}
	return due, nil
}
