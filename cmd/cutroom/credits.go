package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/domain/admin"
	"cutroom/internal/domain/credit"
	"cutroom/internal/work/audit"
	"cutroom/internal/work/user"
)

// maxSupport bounds one entry. A larger amount is a typing error.
const maxSupport = 1_000_000

// maxReason is the maximum length of a reason in bytes. The audit record keeps reasons forever.
const maxReason = 500

func checkSupport(v *invocation) (err error) {
	v.credits, err = strconv.ParseInt(v.args[1], 10, 64)
	if err != nil || v.credits < 1 || v.credits > maxSupport {
		return fmt.Errorf("%q is not a number of credits from 1 to %d", v.args[1], maxSupport)
	}
	if strings.TrimSpace(v.reason) == "" || len(v.reason) > maxReason {
		return fmt.Errorf("--reason <text> is required: at most %d characters, without personal data, "+
			"because the audit record keeps it for ever", maxReason)
	}
	return nil
}

// support gives credits (sign 1) or takes them back (sign -1).
func support(sign int64) runFunc {
	return func(ctx context.Context, v *invocation) error {
		u, err := v.find(ctx)
		if err != nil {
			return err
		}
		id := credit.SupportID(v.job)
		e := supported{UserID: u.ID, Credits: sign * v.credits, Ref: "support-" + id}
		if err := v.enter(ctx, e, id); err != nil {
			return err
		}
		if e.Balance, err = credit.Balance(ctx, v.db, u.ID); err != nil {
			return err
		}
		return v.say(e, "%s: %+d credits, the balance is %d (%s)", e.UserID, e.Credits, e.Balance, e.Ref)
	}
}

// supported is a change of a balance that support made.
type supported struct {
	UserID  string `json:"userId"`
	Credits int64  `json:"credits"`
	Balance int64  `json:"balance"`
	Ref     string `json:"refId"`
}

// enter writes the entry, marks the order that --order names as spent, and writes the audit record, in one transaction.
func (v *invocation) enter(ctx context.Context, e supported, id string) error {
	detail := audit.Detail{"credits": e.Credits, "reason": v.reason, "ref": e.Ref}
	if v.order.Platform != "" {
		detail["order"] = v.order.Platform // not its number, which would outlive the account
	}
	if v.job != "" {
		j, err := v.readJob(ctx, v.job)
		if err != nil {
			return err
		}
		if j.UserID != e.UserID {
			return fmt.Errorf("job %s does not belong to user %s", v.job, e.UserID)
		}
		detail["job"] = v.job
	}
	err := v.db.InTx(ctx, func(tx *db.Tx) error {
		fresh, err := credit.Support(ctx, tx, e.UserID, id, e.Credits)
		if err != nil {
			return err
		}
		if !fresh {
			return fmt.Errorf("support has already made an entry for job %s: %s", v.job, e.Ref)
		}
		if v.order.Platform != "" {
			unspent, err := credit.SpendOrder(ctx, tx, e.UserID, v.order, e.Credits)
			if err != nil {
				return err
			}
			if !unspent {
				return fmt.Errorf("order %[1]s was already paid out; see cutroom user show %[1]s", v.order.TransactionID)
			}
		}
		return audit.Record(ctx, tx, audit.Entry{Actor: actor(), Action: audit.SupportEntry, Target: e.UserID, Detail: detail})
	})
	if f := fault.As(err); f != nil && f.Kind == fault.PaymentRequired {
		return fmt.Errorf("the balance is less than that: %s", f.Detail)
	}
	if errors.Is(err, user.ErrDeleted) {
		return errors.New("the account was deleted just now")
	}
	return err
}

// readJob returns a job of any user.
func (v *invocation) readJob(ctx context.Context, id string) (admin.Job, error) {
	j, err := admin.New(v.db).Job(ctx, id, "support-"+credit.SupportID(id))
	if f := fault.As(err); f != nil && f.Kind == fault.NotFound {
		return j, fmt.Errorf("there is no job %q", id)
	}
	return j, err
}
