// Package user owns the table users. It alone decides what a deletion in progress means: from its
// first write on, the account exists for no request.
//
// Other packages call [Lock] in their own transactions, or put the condition [Exists] into their
// own queries. Sign-in and erasure belong to package account.
package user

import (
	"context"
	"fmt"

	"cutroom/internal/db"
	"cutroom/internal/fault"
)

// ErrDeleted is returned for an account that is deleted or being erased.
var ErrDeleted = fault.New(fault.Unauthorized, "account_deleted")

// ErrNotAdmin is returned for a user who is not an admin.
var ErrNotAdmin = fault.New(fault.Forbidden, "admin_required")

// Lock marks a user as active and holds the row until the transaction ends: a deletion of the
// account either sees what the transaction writes, or makes Lock return ErrDeleted.
func Lock(ctx context.Context, tx *db.Tx, id string) error {
	return change(ctx, tx, `last_active_at = now_ms()`, id)
}

// LockAdmin holds the row of an admin until the transaction ends, so that a revocation happens
// either before, as ErrNotAdmin, or after.
func LockAdmin(ctx context.Context, tx *db.Tx, id string) error {
	return found(ctx, tx, ErrNotAdmin, admin+tx.ForUpdate(), id)
}

// Check returns ErrDeleted unless the user exists.
func Check(ctx context.Context, q db.Querier, id string) error {
	return found(ctx, q, ErrDeleted, `SELECT 1 FROM users WHERE id = $1 AND erasing_at IS NULL`, id)
}

// CheckAdmin returns ErrNotAdmin unless the user is an admin now.
func CheckAdmin(ctx context.Context, q db.Querier, id string) error {
	return found(ctx, q, ErrNotAdmin, admin, id)
}

const admin = `SELECT 1 FROM users WHERE id = $1 AND role = 'admin' AND erasing_at IS NULL`

func found(ctx context.Context, q db.Querier, missing *fault.Error, query, id string) error {
	known, err := db.HasRow(ctx, q, query, id)
	switch {
	case err != nil:
		return fmt.Errorf("look for user: %w", err)
	case !known:
		return missing
	}
	return nil
}

// Exists is the SQL condition that the account exists whose id is in the given column.
func Exists(column string) string {
	return `EXISTS (SELECT 1 FROM users u WHERE u.id = ` + column + ` AND u.erasing_at IS NULL)`
}

// NotErasing is [Exists] for a scan of many rows that refer to users. It is neither a join nor an
// EXISTS: both databases may turn those into a join that reads a whole queue to find its head. Few
// accounts are being deleted, and the list of them is read once.
func NotErasing(column string) string {
	return column + ` NOT IN (SELECT u.id FROM users u WHERE u.erasing_at IS NOT NULL)`
}

// ExistsQuery returns 1 for the user $1, 0 while the account is being erased, and no row if it is
// deleted.
const ExistsQuery = `SELECT CASE WHEN erasing_at IS NULL THEN 1 ELSE 0 END FROM users WHERE id = $1`
