package credit

import (
	"context"

	"github.com/google/uuid"

	"cutroom/internal/db"
)

// Support writes what support gives (amount > 0) or takes back (amount < 0)
// inside the caller's transaction, once under the reference id: the ledger
// names it support-<id>. It reports whether the entry is new. Taking more than
// the balance holds is insufficient_credits. What is taken settles what the
// user owes, the oldest debt first.
func Support(ctx context.Context, tx *db.Tx, userID, id string, amount int64) (bool, error) {
	fresh, err := enter(ctx, tx, userID, kindSupport, "support-"+id, amount)
	if err != nil || !fresh {
		return false, err
	}
	if amount >= 0 {
		return true, nil
	}
	return true, settle(ctx, tx, userID, -amount, func(debt, int64) error { return nil })
}

// supportSpace is the namespace of the ids of entries that are bound to a job.
var supportSpace = uuid.MustParse("5b0c2a3e-5e8d-4d43-9d0a-6a1a3f1f7c55")

// SupportID is the id of a new entry of support. Of those bound to a job there
// is one: the ledger's unique reference refuses a second.
func SupportID(jobID string) string {
	if jobID == "" {
		return uuid.NewString()
	}
	return uuid.NewSHA1(supportSpace, []byte(jobID)).String()
}
