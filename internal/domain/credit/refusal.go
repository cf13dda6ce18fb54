package credit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/work/ratelimit"
	"cutroom/internal/work/user"
)

// receiptInvalid is the error code for a receipt that a store refuses.
const receiptInvalid = "receipt_invalid"

// ReasonUnanswered is the error code for a store that does not answer, and the reason of a recorded attempt that ended
// so.
const ReasonUnanswered = "receipt_verify_unavailable"

// recordTimeout bounds the write of the record of an attempt, whose own deadline may have passed.
const recordTimeout = 5 * time.Second

// refusals limits how many of a user's receipts a store may refuse before the service stops sending them.
var refusals = ratelimit.Limit{Name: "receipt-refusals", PerMinute: 20}

// The limits of the records of refused receipts. Support reads the records.
const (
	refusalsKept    = 90 * day
	refusalsPerUser = 100
)

// recordUnanswered records an attempt that the store did not answer, and returns its failure. The record does not
// depend on the request, which may have ended while it waited for the store.
func (l *Ledger) recordUnanswered(ctx context.Context, p purchase, failure *fault.Error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	if err := l.recordRefusal(ctx, p, ReasonUnanswered); err != nil {
		return failure.WithCause(errors.Join(failure.Err, err))
	}
	return failure
}

// recordRefusal records that a store refused the receipt of a user's order or did not answer. It stores no receipt. It
// keeps only a user's newest orders: clients choose the order numbers, so they could fill the table.
func (l *Ledger) recordRefusal(ctx context.Context, p purchase, reason string) error {
	err := l.o.DB.InTx(ctx, func(tx *db.Tx) error {
		if err := user.Lock(ctx, tx, p.buyer); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO receipt_refusals (user_id, platform, order_id, product_id, reason, attempts, created_at)
			VALUES ($1, $2, $3, $4, $5, 1, now_ms())
			ON CONFLICT (user_id, platform, order_id, product_id) DO UPDATE
			SET reason = excluded.reason, attempts = receipt_refusals.attempts + 1, created_at = excluded.created_at`,
			p.buyer, p.Platform, db.Clean(p.TransactionID, maxTransaction), p.product, reason); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `DELETE FROM receipt_refusals WHERE user_id = $1 AND created_at < (
			SELECT created_at FROM receipt_refusals WHERE user_id = $1 ORDER BY created_at DESC LIMIT 1 OFFSET $2)`,
			p.buyer, refusalsPerUser-1)
		return err
	})
	if err != nil && fault.As(err) == nil {
		return fmt.Errorf("record refused receipt: %w", err)
	}
	return err
}

// SweepRefusals forgets receipts that were refused long ago.
func (l *Ledger) SweepRefusals(ctx context.Context) error {
	_, err := l.o.DB.Exec(ctx, `DELETE FROM receipt_refusals WHERE created_at < now_ms() - $1`, refusalsKept.Milliseconds())
	if err != nil {
		return fmt.Errorf("sweep refused receipts: %w", err)
	}
	return nil
}
