package main

import (
	"context"
	"errors"
	"fmt"

	"cutroom/internal/app"
	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/domain/account"
	"cutroom/internal/domain/credit"
	"cutroom/internal/work/audit"
)

// verified is the result of verifying an order with its store.
type verified struct {
	UserID        string `json:"userId"`
	Platform      string `json:"platform"`
	TransactionID string `json:"transactionId"`
	Granted       int64  `json:"granted"` // 0 if the order was paid out before
	Balance       int64  `json:"balance"`
}

func checkOrder(v *invocation) (err error) {
	v.order, err = credit.ParseOrder(v.args[0] + ":" + v.args[1])
	return err
}

// verifyPurchase verifies a user's order with its store, and grants the credits as the user's own request would.
func verifyPurchase(ctx context.Context, v *invocation) error {
	order := v.order
	u, err := account.Find(ctx, v.db, v.user)
	if err != nil {
		return err
	}
	ledger, err := app.NewLedger(v.cfg, v.db, nil, v.log)
	if err != nil {
		return err
	}
	grant, err := ledger.VerifyOrder(ctx, u.ID, order, v.receipt)
	if err != nil {
		return whyNotPaid(err, order)
	}
	err = v.db.InTx(ctx, func(tx *db.Tx) error {
		return audit.Record(ctx, tx, audit.Entry{Actor: actor(), Action: audit.PurchaseVerified, Target: u.ID,
			Detail: audit.Detail{"platform": order.Platform, "granted": grant.Granted}})
	})
	if err != nil {
		return err
	}
	out := verified{u.ID, order.Platform, order.TransactionID, grant.Granted, grant.Balance}
	if out.Granted == 0 {
		return v.say(out, "order %s was paid out before: +0 credits, the balance of %s is %d", out.TransactionID, u.ID, out.Balance)
	}
	return v.say(out, "%s: +%d credits, the balance is %d", u.ID, out.Granted, out.Balance)
}

// whyNotPaid explains why an order cannot be paid out.
func whyNotPaid(err error, o credit.Order) error {
	f := fault.As(err)
	if f == nil {
		return err
	}
	switch f.Code {
	case "receipt_invalid":
		return fmt.Errorf("%s does not confirm order %s: %s (%s)", o.Platform, o.TransactionID, f.Code, f.Detail)
	case "missing_receipt":
		return fmt.Errorf("%s finds an order only by its purchase token: add --receipt <token>", o.Platform)
	case "iap_unconfigured":
		return fmt.Errorf("%s is not configured (%s)", o.Platform, f.Code)
	case "receipt_verify_unavailable":
		return fmt.Errorf("%s does not answer; try again later (%s)", o.Platform, f.Code)
	case "account_deleted":
		return errors.New("the account was deleted just now")
	}
	return err
}
