// Package audit owns the record of who did what: role changes, credits granted by hand, deleted accounts, sign-outs,
// admin tokens, adopted buckets.
//
// An entry is written in the transaction of the action that it records. Entries outlive the accounts they name, so they
// hold ids and no personal data. This package does not know what the actions mean.
package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"cutroom/internal/base/db"
)

// The actions that are recorded.
const (
	RoleGranted        = "role-granted"        // target: the user
	RoleRevoked        = "role-revoked"        // target: the user
	AdminGrant         = "admin-grant"         // target: the admin, who is the actor too
	SupportEntry       = "support-entry"       // target: the user
	PurchaseVerified   = "purchase-verified"   // target: the user
	AccountErased      = "account-erased"      // target: the user
	SignedOut          = "signed-out"          // target: the user
	TokenIssued        = "token-issued"        // target: the user
	BucketAdopted      = "bucket-adopted"      // target: the installation
	DiskAdopted        = "disk-adopted"        // target: the installation
	SubmissionsPaused  = "submissions-paused"  // target: the kind of job
	SubmissionsResumed = "submissions-resumed" // target: the kind of job
	RenderRetried      = "render-retried"      // target: the job
	SweepConfirmed     = "sweep-confirmed"     // target: the installation
)

// Detail says more about an action, in ids, numbers and words of our own.
type Detail map[string]any

// Entry is one thing that somebody did.
type Entry struct {
	ID     string    `json:"id"`
	Time   time.Time `json:"time"`
	Actor  string    `json:"actor"` // a user's id, or "cli:<uid>"
	Action string    `json:"action"`
	Target string    `json:"target"` // the id of what was acted on
	Detail Detail    `json:"detail"`
}

// Record writes an entry inside the caller's transaction and sets its ID and Time. Ids ascend, so they order entries of
// the same millisecond.
func Record(ctx context.Context, tx *db.Tx, e Entry) error {
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("audit %s: %w", e.Action, err)
	}
	if e.Detail == nil {
		e.Detail = Detail{}
	}
	detail, err := json.Marshal(e.Detail)
	if err != nil {
		return fmt.Errorf("audit %s: %w", e.Action, err)
	}
	_, err = tx.Exec(ctx, `INSERT INTO audit (id, created_at, actor, action, target, detail)
		VALUES ($1, now_ms(), $2, $3, $4, $5)`, id.String(), e.Actor, e.Action, e.Target, string(detail))
	if err != nil {
		return fmt.Errorf("audit %s: %w", e.Action, err)
	}
	return nil
}

// Filter says which entries are wanted. A zero field matches every entry.
type Filter struct {
	Action, Target string
	Since          time.Time
	Limit          int // 0 means no limit
}

// List returns entries, newest first.
func List(ctx context.Context, q db.Querier, f Filter) ([]Entry, error) {
	entries, err := db.All(ctx, q, scan, `SELECT id, created_at, actor, action, target, detail FROM audit
		WHERE created_at >= $1 AND ($2 = '' OR action = $2) AND ($3 = '' OR target = $3)
		ORDER BY created_at DESC, id DESC LIMIT $4`, max(0, f.Since.UnixMilli()), f.Action, f.Target, cmp.Or(int64(f.Limit), 1<<62))
	if err != nil {
		return nil, fmt.Errorf("read audit record: %w", err)
	}
	return entries, nil
}

func scan(row db.Scanner) (e Entry, err error) {
	var ms int64
	var detail string
	if err := row.Scan(&e.ID, &ms, &e.Actor, &e.Action, &e.Target, &detail); err != nil {
		return e, err
	}
	e.Time = time.UnixMilli(ms).UTC()
	if err := json.Unmarshal([]byte(detail), &e.Detail); err != nil {
		return e, fmt.Errorf("detail of %s: %w", e.ID, err)
	}
	return e, nil
}
