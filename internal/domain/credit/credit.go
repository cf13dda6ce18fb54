// Package credit owns the price of a separation and the ledger of credits.
//
// A user's balance is never negative and always equals the sum of the user's ledger entries: every change writes an
// entry and updates the balance in one transaction, and the entry's ref_id is a unique key, so a repeated change has no
// effect. Functions that take a [db.Tx] join the caller's transaction, so that a charge and its job commit together.
package credit

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/semaphore"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/work/user"
)

// The billing constants of a separation, in milliseconds.
const (
	// BillableBlockMs is the length that one credit pays for.
	BillableBlockMs = 300_000
	// GraceMs is the padding that an encoder may add before the next block begins.
	GraceMs = 1_000
	// PaddingMs is how much longer the provider may measure the same sound than we do, because it counts the encoder's
	// padding.
	PaddingMs = 500
)

// Price is the cost in credits of separating audio of the given length in milliseconds: the smallest n >= 1 with
// durationMs <= n*300000 + 1000. The quote and the charge both call it. Negative lengths cost as zero.
func Price(durationMs int64) int64 {
	if durationMs <= BillableBlockMs+GraceMs {
		return 1
	}
	return (durationMs-GraceMs-1)/BillableBlockMs + 1
}

// The kinds of ledger entries.
const (
	kindSignup   = "signup"
	kindPurchase = "purchase"
	kindAdmin    = "admin"
	kindConsume  = "consume"
	kindRefund   = "refund"
	kindSupport  = "support"
	kindReversal = "reversal"
)

// refPrefixes are the prefixes of the references of all kinds: the kind, or the platform of a purchase.
var refPrefixes = []string{kindSignup + "-", "platform_", kindAdmin + "-", kindConsume + "-", kindRefund + "-",
	kindSupport + "-", kindReversal + "-"}

// Ledger keeps balances. It is safe for concurrent use, on any number of replicas.
type Ledger struct {
	o      Options
	stores map[string]*limitedStore
}

// Options configures a Ledger.
type Options struct {
	DB *db.DB
	// Catalog gives the credits of each product id.
	Catalog map[string]int64
	// Stores by platform; a platform without a store is not configured.
	Stores map[string]Store
	// SignupBonus is granted once per user; 0 grants none.
	SignupBonus int64
	// BonusKey grants the bonus once per identity: a hash of the identity under this key outlives the account. ""
	// grants it to every new account.
	BonusKey string
	// AdminDailyCap bounds what one admin may mint in a rolling 24 hours.
	AdminDailyCap int64
	Log           *slog.Logger
}

// New returns a Ledger over a migrated database.
func New(o Options) *Ledger {
	l := &Ledger{o: o, stores: map[string]*limitedStore{}}
	for platform, s := range o.Stores {
		l.stores[platform] = &limitedStore{Store: s, platform: platform, slots: semaphore.NewWeighted(maxAsking)}
	}
	return l
}

// Balance returns a user's credits, 0 for an unknown or deleted user.
func (l *Ledger) Balance(ctx context.Context, userID string) (int64, error) {
	return Balance(ctx, l.o.DB, userID)
}

// Balance returns a user's credits, 0 for an unknown or deleted user.
func Balance(ctx context.Context, q db.Querier, userID string) (int64, error) {
	var n int64
	err := q.QueryRow(ctx, `SELECT b.balance FROM credit_balances b WHERE b.user_id = $1 AND `+user.Exists("b.user_id"), userID).Scan(&n)
	if db.IsNoRows(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read balance: %w", err)
	}
	return n, nil
}

// Quote is the cost of a separation and the user's balance.
type Quote struct {
	DurationMs int64 `json:"durationMs"`
	Credits    int64 `json:"credits"`
	Balance    int64 `json:"balance"`
	Sufficient bool  `json:"sufficient"`
}

// Quote prices audio of the given length (>= 0) for a user.
func (l *Ledger) Quote(ctx context.Context, userID string, durationMs int64) (Quote, error) {
	have, err := l.Balance(ctx, userID)
	price := Price(durationMs)
	return Quote{durationMs, price, have, have >= price}, err
}

// GrantSignup grants the signup bonus unless the user or, with a bonus key, an earlier account of the same identity
// had it. Every sign-in calls it, so a later one repeats a grant that failed.
func (l *Ledger) GrantSignup(ctx context.Context, userID string) error {
	if l.o.SignupBonus <= 0 {
		return nil
	}
	return l.o.DB.InTx(ctx, func(tx *db.Tx) error {
		had, err := l.hadBonus(ctx, tx, userID)
		if err != nil || had {
			return err
		}
		_, err = enter(ctx, tx, userID, kindSignup, "signup-"+userID, l.o.SignupBonus)
		return err
	})
}

// Charge takes credits for a job inside the caller's transaction. If the balance does not cover them, the error is
// insufficient_credits and the transaction must not be committed. Charging the same job twice is a bug.
func Charge(ctx context.Context, tx *db.Tx, userID, jobID string, credits int64) error {
	fresh, err := enter(ctx, tx, userID, kindConsume, "consume-"+jobID, -credits)
	if err == nil && !fresh {
		err = fmt.Errorf("job %s was charged before", jobID)
	}
	return err
}

// Insufficient returns the error for a balance that does not cover a price.
func Insufficient(required, have int64) *fault.Error {
	err := fault.New(fault.PaymentRequired, "insufficient_credits").WithDetail("required=%d balance=%d", required, have)
	err.Shortfall = &fault.Shortfall{Required: required, Balance: have}
	return err
}

// Refund returns a job's charge inside the caller's transaction. The refund first settles the user's debts for
// purchases that a store refunded. Refund reports false, and does nothing, if the job was never charged or is already
// refunded.
func Refund(ctx context.Context, tx *db.Tx, userID, jobID string) (bool, error) {
	var amount int64
	err := tx.QueryRow(ctx, `SELECT amount FROM credit_ledger WHERE ref_id = $1 AND user_id = $2`,
		"consume-"+jobID, userID).Scan(&amount)
	if db.IsNoRows(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read charge: %w", err)
	}
	refunded, err := enter(ctx, tx, userID, kindRefund, "refund-"+jobID, -amount)
	if err != nil || !refunded {
		return false, err
	}
	return true, settle(ctx, tx, userID, -amount, true)
}

// enter writes a ledger entry under its reference, once, and changes the balance by the same amount. It reports whether
// the entry is new. If the balance would become negative, the error is insufficient_credits and the transaction must
// not be committed.
func enter(ctx context.Context, tx *db.Tx, userID, kind, ref string, amount int64) (bool, error) {
	n, err := tx.Exec(ctx, `INSERT INTO credit_ledger (ref_id, user_id, kind, amount, created_at)
		VALUES ($1, $2, $3, $4, now_ms()) ON CONFLICT (ref_id) DO NOTHING`, ref, userID, kind, amount)
	if err != nil {
		return false, fmt.Errorf("write %s entry: %w", kind, err)
	}
	if n == 0 {
		return false, nil
	}
	if amount < 0 {
		n, err = tx.Exec(ctx, `UPDATE credit_balances SET balance = balance + $1
			WHERE user_id = $2 AND balance + $1 >= 0`, amount, userID)
	} else {
		n, err = tx.Exec(ctx, `INSERT INTO credit_balances (user_id, balance) VALUES ($1, $2)
			ON CONFLICT (user_id) DO UPDATE SET balance = credit_balances.balance + excluded.balance`, userID, amount)
	}
	if err != nil {
		return false, fmt.Errorf("move balance: %w", err)
	}
	if n == 0 {
		have, err := Balance(ctx, tx, userID)
		if err != nil {
			return false, err
		}
		return false, Insufficient(-amount, have)
	}
	return true, nil
}

// day is the unit of longer periods.
const day = 24 * time.Hour
