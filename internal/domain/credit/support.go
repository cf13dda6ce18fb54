package credit

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/upstream/receipt"
	"cutroom/internal/work/user"
)

// Support writes a support entry inside the caller's transaction: credits given (amount > 0) or taken back (amount <
// 0). Its reference in the ledger is support-<id>, so each id works once. Support reports whether the entry is new.
// Taking more than the balance is insufficient_credits. Credits taken settle the user's debts, the oldest first. The
// error is [user.ErrDeleted] for an account whose deletion has begun: the credits, and an order spent for them, would
// be lost with it.
func Support(ctx context.Context, tx *db.Tx, userID, id string, amount int64) (bool, error) {
	if err := user.Lock(ctx, tx, userID); err != nil {
		return false, err
	}
	fresh, err := enter(ctx, tx, userID, kindSupport, "support-"+id, amount)
	if err == nil && fresh && amount < 0 {
		err = settle(ctx, tx, userID, -amount, false)
	}
	return fresh, err
}

// ParseOrder reads <platform>:<transactionId>.
func ParseOrder(text string) (Order, error) {
	platform, transaction, _ := strings.Cut(text, ":")
	o := Order{TransactionID: strings.TrimSpace(transaction)}
	var err error
	if o.Platform, err = platformOf(platform); err != nil || o.TransactionID == "" || !plausible(o.TransactionID) {
		return Order{}, fmt.Errorf("%q is not an order: write platform_a:<order number> or platform_b:<transaction id>", text)
	}
	return o, nil
}

// SpendOrder records inside the caller's transaction that support granted the credits of an order, so that presenting
// it later grants nothing. It reports whether the order was unspent.
func SpendOrder(ctx context.Context, tx *db.Tx, userID string, o Order, credits int64) (bool, error) {
	return purchase{Order: o, buyer: userID, product: bySupport, credits: credits, bySupport: true}.insert(ctx, tx)
}

// VerifyOrder asks a store about an order that a user claims, and pays out as [Ledger.Purchase] does. Support need not
// know the product: VerifyOrder tries the products of the catalog until one matches. platform_b needs no receipt. The
// user's limit of refused receipts does not apply, and VerifyOrder does not record a refusal.
func (l *Ledger) VerifyOrder(ctx context.Context, userID string, o Order, token string) (Grant, error) {
	p := purchase{Order: o, buyer: userID}
	if grant, spent, err := l.replay(ctx, p); spent || err != nil {
		return grant, err
	}
	store := l.stores[o.Platform]
	switch token = strings.TrimSpace(token); {
	case store == nil:
		return Grant{}, fault.New(fault.Invalid, "iap_unconfigured")
	case token == "" && o.Platform == PlatformA:
		return Grant{}, fault.New(fault.Invalid, "missing_receipt")
	}
	for _, product := range l.Products() {
		p.product = product.ID
		sold, err := p.askStore(ctx, store, token)
		if err == nil {
			return l.payOut(ctx, p.withSale(sold, product.Credits))
		}
		if f := fault.As(err); f == nil || f.Detail != string(receipt.Mismatch) {
			return Grant{}, err
		}
	}
	return Grant{}, fault.New(fault.Invalid, receiptInvalid).WithDetail("%s", receipt.Mismatch)
}

// supportSpace is the UUID namespace of support entries for a job.
var supportSpace = uuid.MustParse("5b0c2a3e-5e8d-4d43-9d0a-6a1a3f1f7c55")

// SupportID returns the id of a new support entry. Entries for the same job get the same id, so the ledger's unique
// reference refuses a second one.
func SupportID(jobID string) string {
	if jobID == "" {
		return uuid.NewString()
	}
	return uuid.NewSHA1(supportSpace, []byte(jobID)).String()
}
