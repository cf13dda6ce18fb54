// Refunds by the stores: notifications and nightly queries adjust the credits of a purchase to the share that its store
// has refunded. A reversal takes credits back, or returns them if the store no longer refunds the purchase.

package credit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/upstream/receipt"
)

// Notify handles a store's notification about a sale. It moves no credits until the store confirms the
// notification. If the store does not answer, or the purchase may be in the middle of being paid out, the next
// [Ledger.CheckPastSales] asks again, so the store need not repeat its notification.
func (l *Ledger) Notify(ctx context.Context, platform, bearer string, body []byte) error {
	store := l.stores[platform]
	if store == nil {
		return fault.NotFoundf("Not found")
	}
	notice, err := store.Notification(ctx, bearer, body)
	switch {
	case errors.Is(err, receipt.ErrNotConfigured):
		return fault.NotFoundf("Not found")
	case errors.Is(err, receipt.ErrForged):
		return fault.New(fault.Unauthorized, "invalid_signature").WithCause(err)
	case err != nil:
		return fault.Busy(time.Minute).WithCause(err)
	}
	t := notice.Transaction
	switch {
	case notice.Problem != "":
		l.o.Log.Warn("a notification cannot be read: "+notice.Problem, "platform", platform)
		return nil
	case t == (receipt.Transaction{}), !plausible(t.ID), len(t.Token) > maxNoticeToken:
		return nil
	}
	if notice.Partial {
		if _, _, paid, err := (Order{platform, t.ID}).spentBy(ctx, l.o.DB); err != nil || !paid {
			return err
		}
		l.o.Log.Warn("the store refunded part of a purchase; take the credits back by hand", "platform", platform, "order", t.ID)
		return nil
	}
	result, err := l.heed(ctx, platform, store, t)
	if err != nil || result == settled {
		return err
	}
	return l.keepNotice(ctx, platform, t)
}

// heeding is the outcome of handling a notification.
type heeding int

const (
	settled     heeding = iota
	unconfirmed         // the store must be asked again
	unknown             // its purchase was not paid out, but a payout may be in progress
)

// heed asks the store about the purchase of a notification, and takes back or gives back its credits.
func (l *Ledger) heed(ctx context.Context, platform string, store *limitedStore, t receipt.Transaction) (heeding, error) {
	if t.ID != "" {
		_, product, paid, err := Order{platform, t.ID}.spentBy(ctx, l.o.DB)
		if err != nil || !paid {
			return unknown, err
		}
		t.ProductID = product
	}
	known, refused := store.refunds(ctx, []receipt.Transaction{t})
	if refused != nil {
		l.o.Log.Warn("the store does not confirm a notification yet", "platform", platform, "err", refused)
	}
	if err := l.applyRefunds(ctx, platform, known); err != nil {
		return unconfirmed, err
	}
	if receipt.Unconfirmed(refused) || errors.Is(refused, receipt.ErrInvalid) {
		return unconfirmed, nil
	}
	return settled, nil
}

func (s *limitedStore) refunds(ctx context.Context, asked []receipt.Transaction) (map[string]receipt.Share, error) {
	done, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return s.Refunds(ctx, asked)
}

// applyRefunds adjusts the credits of purchases to the shares that a store has refunded.
func (l *Ledger) applyRefunds(ctx context.Context, platform string, known map[string]receipt.Share) error {
	for id, share := range known {
		if err := l.applyRefund(ctx, Order{platform, id}, share); err != nil {
			return fmt.Errorf("reverse purchase: %w", err)
		}
	}
	return nil
}

// paidSale is a purchase that was paid out, as far as refunds concern it. See the schema for its columns.
type paidSale struct {
	buyer                          string // "" after the account's deletion
	credits, refunded, taken, owed int64
	reversals                      int
}

// readSale reads a purchase; its error for an unknown one is db.IsNoRows.
func (o Order) readSale(ctx context.Context, q db.Querier, lock string) (s paidSale, err error) {
	err = q.QueryRow(ctx, `SELECT COALESCE(buyer_id, ''), credits, refunded, taken, owed, reversals FROM purchases
		WHERE platform = $1 AND transaction_hash = $2`+lock, o.Platform, o.Hash()).
		Scan(&s.buyer, &s.credits, &s.refunded, &s.taken, &s.owed, &s.reversals)
	return s, err
}

// changes reports whether a store's answer differs from what was applied. A smaller share counts only if it is zero:
// shares grow, and a refund is reversed as a whole.
func (s paidSale) changes(share receipt.Share) bool {
	return share.Credits(s.credits) > s.refunded || share == (receipt.Share{}) && s.refunded > 0
}

// applyRefund adjusts the credits of a purchase to the share that its store has refunded so far. It takes back the
// missing credits as far as the balance covers them; the rest becomes the user's debt. If the store has reversed its
// refund, applyRefund gives back the credits that it took, and cancels the debt. It does nothing for a purchase that is
// unknown or up to date.
func (l *Ledger) applyRefund(ctx context.Context, o Order, share receipt.Share) error {
	// Nearly all answers change nothing, and need no lock.
	switch s, err := o.readSale(ctx, l.o.DB, ""); {
	case db.IsNoRows(err):
		return nil
	case err != nil || !s.changes(share):
		return err
	}
	var amount int64
	var s paidSale
	changed := false
	err := l.o.DB.InTx(ctx, func(tx *db.Tx) (err error) {
		buyer, _, paid, err := o.spentBy(ctx, tx)
		if err != nil || !paid {
			return err
		}
		// Every transaction that changes a debt locks the balance before the purchase, so a debt and a job's refund
		// neither miss each other nor deadlock.
		balance, err := lockBalance(ctx, tx, buyer)
		if err != nil {
			return err
		}
		if s, err = o.readSale(ctx, tx, tx.ForUpdate()); err != nil {
			return err
		}
		if changed = s.changes(share); !changed {
			return nil
		}
		amount = s.move(share, balance)
		if s.buyer != "" && (amount != 0 || s.refunded > 0) {
			if s.reversals, err = o.enterReversal(ctx, tx, s.buyer, s.reversals, amount); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, `UPDATE purchases SET refunded = $1, taken = $2, owed = $3, reversals = $4,
				reversed_at = CASE WHEN $1 = credits THEN COALESCE(reversed_at, now_ms()) END
			WHERE platform = $5 AND transaction_hash = $6`, s.refunded, s.taken, s.owed, s.reversals, o.Platform, o.Hash())
		return err
	})
	switch {
	case err != nil:
		return err
	case !changed:
	case s.refunded == 0:
		l.o.Log.Warn("the store reversed its refund of a purchase; its credits were given back",
			"platform", o.Platform, "order", o.TransactionID, "user", s.buyer, "given", amount)
	default:
		l.o.Log.Info("the store refunded a purchase; its credits were taken back", "platform", o.Platform,
			"order", o.TransactionID, "user", s.buyer, "taken", -amount, "owed", s.owed, "refunded", s.refunded, "of", s.credits)
	}
	return nil
}

// move applies a share that changes s, and returns by how much the buyer's balance changes.
func (s *paidSale) move(share receipt.Share, balance int64) int64 {
	if share == (receipt.Share{}) {
		given := s.taken
		s.refunded, s.taken, s.owed = 0, 0, 0
		return s.ifBuyer(given)
	}
	target := share.Credits(s.credits)
	missing := s.ifBuyer(target - s.refunded)
	taken := min(missing, balance)
	s.refunded = target
	s.taken += taken
	s.owed += missing - taken
	return -taken
}

// ifBuyer returns n, or 0 after the deletion of the buyer's account.
func (s *paidSale) ifBuyer(n int64) int64 {
	if s.buyer == "" {
		return 0
	}
	return n
}

// How long a notification that is not settled is kept, and how long one whose purchase was not paid out: longer than
// its store may take to confirm it.
const (
	noticeLife = 3 * day
	unpaidLife = 10 * time.Minute
	// A young notification is due at every sweep, and an older one now and then.
	minNoticeWait = 50 * time.Second
	maxNoticeWait = 15 * time.Minute
	// maxNoticeToken is above the length of any purchase token, in bytes, and below the limit of a database index.
	maxNoticeToken = 1000
)

// keepNotice keeps a notification for [Ledger.CheckPastSales].
func (l *Ledger) keepNotice(ctx context.Context, platform string, t receipt.Transaction) error {
	_, err := l.o.DB.Exec(ctx, `INSERT INTO sale_notices (platform, order_id, token, product_id, created_at, due_at)
		VALUES ($1, $2, $3, $4, now_ms(), now_ms()) ON CONFLICT (platform, order_id, token) DO UPDATE SET
		created_at = excluded.created_at, due_at = excluded.due_at`,
		platform, t.ID, db.Clean(t.Token, maxNoticeToken), db.Clean(t.ProductID, maxTransaction))
	if err != nil {
		return fmt.Errorf("keep notification: %w", err)
	}
	return nil
}

// keptNotice is a notification that is not settled.
type keptNotice struct {
	platform string
	receipt.Transaction
	age time.Duration
}

// heedKept asks the stores again about notifications that are not settled.
func (l *Ledger) heedKept(ctx context.Context) error {
	due, err := l.claimNotices(ctx)
	if err != nil {
		return err
	}
	silent := map[string]bool{} // stores that did not answer
	for _, n := range due {
		store := l.stores[n.platform]
		if store == nil || silent[n.platform] {
			continue
		}
		result, err := l.heed(ctx, n.platform, store, n.Transaction)
		if err != nil {
			return err
		}
		silent[n.platform] = result == unconfirmed
		if result == settled || result == unknown && n.age > unpaidLife {
			if _, err := l.o.DB.Exec(ctx, `DELETE FROM sale_notices WHERE platform = $1 AND order_id = $2 AND token = $3`,
				n.platform, n.ID, n.Token); err != nil {
				return fmt.Errorf("settle notification: %w", err)
			}
		}
	}
	return nil
}

// claimNotices returns the notifications that are due, and postpones them. It forgets those that are too old.
func (l *Ledger) claimNotices(ctx context.Context) (due []keptNotice, err error) {
	err = l.o.DB.InTx(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `DELETE FROM sale_notices WHERE created_at < now_ms() - $1`, noticeLife.Milliseconds()); err != nil {
			return err
		}
		due, err = db.All(ctx, tx, func(row db.Scanner) (n keptNotice, err error) {
			var ageMs int64
			err = row.Scan(&n.platform, &n.ID, &n.Token, &n.ProductID, &ageMs)
			n.age = time.Duration(ageMs) * time.Millisecond
			return n, err
		}, `UPDATE sale_notices SET due_at = now_ms() + CASE WHEN now_ms() - created_at <= $1 THEN CAST($2 AS BIGINT) ELSE CAST($3 AS BIGINT) END
			WHERE (platform, order_id, token) IN (SELECT platform, order_id, token FROM sale_notices
				WHERE due_at <= now_ms() ORDER BY due_at LIMIT $4`+l.o.DB.SkipLockedOf("sale_notices")+`)
			RETURNING platform, order_id, token, product_id, now_ms() - created_at`,
			unpaidLife.Milliseconds(), minNoticeWait.Milliseconds(), maxNoticeWait.Milliseconds(), askBatch)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim notifications: %w", err)
	}
	return due, nil
}

// How often the service asks the stores about past sales: about once a night for each purchase while a refund is
// likely, askBatch purchases at a time.
const (
	askAgain  = 20 * time.Hour
	askWithin = 90 * day
	askBatch  = 200
)

// CheckPastSales asks the stores which recent purchases they have refunded and which refunds they have reversed. It
// also asks again about notifications that are not settled.
func (l *Ledger) CheckPastSales(ctx context.Context) error {
	errs := []error{l.heedKept(ctx)}
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
	known, err := store.refunds(ctx, due)
	if err != nil {
		l.o.Log.Warn("the store did not answer about past sales", "platform", platform, "err", err)
	}
	if receipt.Unconfirmed(err) {
		// The next run asks first about the purchases without an answer.
		for _, t := range due {
			if _, told := known[t.ID]; !told {
				if err := l.recheckSoon(context.WithoutCancel(ctx), Order{platform, t.ID}); err != nil {
					return err
				}
			}
		}
	}
	return l.applyRefunds(ctx, platform, known)
}

func (l *Ledger) recheckSoon(ctx context.Context, o Order) error {
	if _, err := l.o.DB.Exec(ctx, `UPDATE purchases SET asked_at = 0 WHERE platform = $1 AND transaction_hash = $2`,
		o.Platform, o.Hash()); err != nil {
		return fmt.Errorf("mark purchase: %w", err)
	}
	return nil
}

// claimSales marks a batch of due purchases as asked, and returns it.
func (l *Ledger) claimSales(ctx context.Context, platform string) ([]receipt.Transaction, error) {
	ids, err := l.o.DB.ExecTexts(ctx, `UPDATE purchases SET asked_at = now_ms()
		WHERE platform = $1 AND transaction_hash IN (
			SELECT transaction_hash FROM purchases
			WHERE platform = $1 AND order_id IS NOT NULL AND (reversed_at IS NULL OR platform = 'platform_b') -- which may reverse a refund
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
