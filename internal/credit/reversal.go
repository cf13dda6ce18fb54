package credit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

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
	return l.confirm(ctx, platform, store, t, notice.Reinstated)
}

func (l *Ledger) confirm(ctx context.Context, platform string, store *limitedStore, t receipt.Transaction, reinstated bool) error {
	known, err := store.reversed(ctx, []receipt.Transaction{t})
	if err != nil {
		l.log.Warn("the store does not confirm a notification yet", "platform", platform, "err", err)
		return l.recheckSoon(ctx, platform, t.ID)
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
	p, changed, err := l.changeSale(ctx, platform, transaction, func(tx *db.Tx, p sale) (bool, error) {
		if p.reversed {
			return false, nil
		}
		taken, owed = 0, 0
		if p.buyer != "" {
			taken = min(p.balance, p.credits)
			owed = p.credits - taken
			entered, err := enter(ctx, tx, p.buyer, kindReversal, reversalRef(platform, transaction), -taken)
			if err != nil || !entered {
				return false, err // reversed and reinstated before: allowed once
			}
		}
		_, err := tx.Exec(ctx, `UPDATE purchases SET reversed_at = now_ms(), owed = $1
			WHERE platform = $2 AND transaction_hash = $3`, owed, platform, TransactionHash(platform, transaction))
		if err != nil {
			return false, fmt.Errorf("mark purchase as reversed: %w", err)
		}
		return true, nil
	})
	log := l.log.With("platform", platform, "order", transaction, "user", p.buyer)
	switch {
	case err != nil:
		return fmt.Errorf("reverse purchase: %w", err)
	case changed:
		log.Info("the store refunded a purchase; its credits were taken back", "taken", taken, "owed", owed)
	case p.found && !p.reversed:
		log.Warn("the store refunded a purchase a second time; settle it by hand")
	}
	return nil
}

// reinstate returns the credits that a reversal took, once, because the store cancelled its refund. It drops a
// debt that is not settled.
func (l *Ledger) reinstate(ctx context.Context, platform, transaction string) error {
	p, changed, err := l.changeSale(ctx, platform, transaction, func(tx *db.Tx, p sale) (bool, error) {
		if !p.reversed {
			return false, nil
		}
		if p.buyer != "" {
			ref := reversalRef(platform, transaction) + "-undone"
			entered, err := enter(ctx, tx, p.buyer, kindReversal, ref, p.credits-p.owed)
			if err != nil || !entered {
				return false, err
			}
		}
		_, err := tx.Exec(ctx, `UPDATE purchases SET reversed_at = NULL, owed = 0
			WHERE platform = $1 AND transaction_hash = $2`, platform, TransactionHash(platform, transaction))
		if err != nil {
			return false, fmt.Errorf("mark purchase as standing: %w", err)
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("reinstate purchase: %w", err)
	}
	if changed {
		l.log.Info("the store cancelled its refund; the credits were given back",
			"platform", platform, "order", transaction, "user", p.buyer, "given", p.credits-p.owed)
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
	credits, owed   int64
	balance         int64 // of the buyer
}

// changeSale locks a purchase and calls change with it, in a transaction that may run more than once. It
// returns the purchase and the result of change. Every transaction that changes a debt locks the buyer's
// balance before the purchase, so a debt and a job's refund neither miss each other nor deadlock.
func (l *Ledger) changeSale(ctx context.Context, platform, transaction string,
	change func(*db.Tx, sale) (bool, error)) (p sale, changed bool, err error) {
	err = l.db.InTx(ctx, func(tx *db.Tx) (err error) {
		changed = false
		if p, err = readSale(ctx, tx, platform, transaction, ""); err != nil || !p.found {
			return err
		}
		balance, err := lockBalance(ctx, tx, p.buyer)
		if err != nil {
			return err
		}
		if p, err = readSale(ctx, tx, platform, transaction, tx.ForUpdate()); err != nil || !p.found {
			return err
		}
		p.balance = balance
		changed, err = change(tx, p)
		return err
	})
	return p, changed, err
}

func readSale(ctx context.Context, tx *db.Tx, platform, transaction, locking string) (sale, error) {
	p := sale{found: true}
	err := tx.QueryRow(ctx, `SELECT COALESCE(buyer_id, ''), credits, owed, CASE WHEN reversed_at IS NULL THEN 0 ELSE 1 END
		FROM purchases WHERE platform = $1 AND transaction_hash = $2`+locking,
		platform, TransactionHash(platform, transaction)).Scan(&p.buyer, &p.credits, &p.owed, &p.reversed)
	if db.IsNoRows(err) {
		return sale{}, nil
	}
	if err != nil {
		return sale{}, fmt.Errorf("read purchase: %w", err)
	}
	return p, nil
}

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
	platform, hash, transaction string
	owed                        int64
}

// settle uses up to this many credits to pay the debts of a user, the oldest first. It calls pay with each debt
// and the amount paid of it. The caller's transaction must hold the lock on the user's balance.
func settle(ctx context.Context, tx *db.Tx, userID string, credits int64, pay func(d debt, paid int64) error) error {
	debts, err := db.All(ctx, tx, func(row db.Scanner) (d debt, err error) {
		err = row.Scan(&d.platform, &d.hash, &d.transaction, &d.owed)
		return d, err
	}, `SELECT platform, transaction_hash, COALESCE(order_id, transaction_hash), owed FROM purchases
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
			paid, d.platform, d.hash); err != nil {
			return fmt.Errorf("settle debt: %w", err)
		}
		credits -= paid
	}
	return nil
}

// settleFromRefund pays the user's debts from a job's refund.
func settleFromRefund(ctx context.Context, tx *db.Tx, userID string, refunded int64) error {
	return settle(ctx, tx, userID, refunded, func(d debt, paid int64) error {
		base := reversalRef(d.platform, d.transaction) + "-"
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
		if err := l.askAboutSales(ctx, platform, store); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", platform, err))
		}
	}
	return errors.Join(errs...)
}

func (l *Ledger) askAboutSales(ctx context.Context, platform string, store *limitedStore) error {
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
