// Package user owns the table users: who has an account. It is the one package
// that knows what a deletion under way means: from its first write on, the
// account exists for nobody.
//
// Others ask inside their own transactions ([Lock]) or put a condition on a
// user's id into their own queries ([Exists]). How people sign in, and how an
// account is erased, is package account's matter.
package user

import (
	"context"
	"fmt"

	"cutroom/internal/db"
	"cutroom/internal/fault"
)

// ErrDeleted answers for an account that is gone or being erased.
var ErrDeleted = fault.New(fault.Unauthorized, "account_deleted")

// ErrNotAdmin answers a user who is not an admin.
var ErrNotAdmin = fault.New(fault.Forbidden, "admin_required")

// Lock notes that a user is active and holds the row to the end of the
// transaction: a deletion of the account either sees what the transaction writes,
// or is seen here, as ErrDeleted.
func Lock(ctx context.Context, tx *db.Tx, id string) error {
	n, err := tx.Exec(ctx, `UPDATE users SET last_active_at = now_ms() WHERE id = $1 AND erasing_at IS NULL`, id)
	if err != nil {
		return fmt.Errorf("lock user: %w", err)
	}
	if n == 0 {
		return ErrDeleted
	}
	return nil
}

// LockAdmin holds the row of an admin to the end of the transaction, so that a
// revocation comes before, as ErrNotAdmin, or after.
func LockAdmin(ctx context.Context, tx *db.Tx, id string) error {
	return found(ctx, tx, ErrNotAdmin, admin+tx.ForUpdate(), id)
}

// Check answers ErrDeleted unless the user exists.
func Check(ctx context.Context, q db.Querier, id string) error {
	return found(ctx, q, ErrDeleted, `SELECT 1 FROM users WHERE id = $1 AND erasing_at IS NULL`, id)
}

// CheckAdmin answers ErrNotAdmin unless the user is an admin at this moment.
func CheckAdmin(ctx context.Context, q db.Querier, id string) error {
	return found(ctx, q, ErrNotAdmin, admin, id)
}

const admin = `SELECT 1 FROM users WHERE id = $1 AND role = 'admin' AND erasing_at IS NULL`

func found(ctx context.Context, q db.Querier, missing *fault.Error, query, id string) error {
	err := q.QueryRow(ctx, query, id).Scan(new(int))
	switch {
	case db.IsNoRows(err):
		return missing
	case err != nil:
		return fmt.Errorf("look for user: %w", err)
	}
	return nil
}

// Exists is the SQL condition that the account of a user, whose id a column of
// the query holds, exists.
func Exists(column string) string {
	return `EXISTS (SELECT 1 FROM users u WHERE u.id = ` + column + ` AND u.erasing_at IS NULL)`
}

// Everybody is the FROM clause of a query over all accounts, whose ids are u.id.
const Everybody = `users u WHERE u.erasing_at IS NULL`

// Stays is [Exists] for a search through many rows that refer to users. It is
// neither a join nor an EXISTS, which both databases may turn into one and then
// look through a whole queue for its head: few accounts are being deleted, and
// their list is made once.
func Stays(column string) string {
	return column + ` NOT IN (SELECT u.id FROM users u WHERE u.erasing_at IS NOT NULL)`
}

// ExistsQuery answers about the user $1 with 1, or with 0 while the account is
// being erased; there is no row of one that is gone.
const ExistsQuery = `SELECT CASE WHEN erasing_at IS NULL THEN 1 ELSE 0 END FROM users WHERE id = $1`
