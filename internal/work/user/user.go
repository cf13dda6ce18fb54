// Package user owns the table users. It alone decides what a deletion in progress means: from its first write on, no
// request finds the account.
//
// Other packages call [Lock] in their own transactions, or put the condition [Exists] into their own queries. Sign-in
// and erasure belong to package account.
package user

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
)

// ErrDeleted is returned for an account that is deleted or being erased.
var ErrDeleted = fault.New(fault.Unauthorized, "account_deleted")

// ErrNotAdmin is returned for a user who is not an admin.
var ErrNotAdmin = fault.New(fault.Forbidden, "admin_required")

// ErrSignedOut is returned for an access token that a sign-out has invalidated.
var ErrSignedOut = fault.New(fault.Unauthorized, "invalid_token")

// Lock marks a user as active and holds the row until the transaction ends: a deletion of the account either sees what
// the transaction writes, or makes Lock return ErrDeleted.
func Lock(ctx context.Context, tx *db.Tx, id string) error {
	return change(ctx, tx, `last_active_at = now_ms()`, id)
}

// LockSession is [Lock] for a request with an access token issued at the given time. It returns ErrSignedOut if the
// user signed out afterwards, which a replica may not know yet.
func LockSession(ctx context.Context, tx *db.Tx, id string, issued time.Time) (User, error) {
	if err := Lock(ctx, tx, id); err != nil {
		return User{}, err
	}
	u, err := Get(ctx, tx, id)
	if err == nil && issued.Before(u.ValidFrom()) {
		err = ErrSignedOut
	}
	return u, err
}

// LockAdmin holds the row of an admin until the transaction ends, so that a revocation happens either before, as
// ErrNotAdmin, or after.
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

// NotErasing is [Exists] for a scan of many rows that refer to users. It is neither a join nor an EXISTS: both
// databases may turn those into a join that reads a whole queue to find its head. Few accounts are being deleted, and
// the list of them is read once.
func NotErasing(column string) string {
	return column + ` NOT IN (SELECT u.id FROM users u WHERE u.erasing_at IS NOT NULL)`
}

// ExistsQuery returns 1 for the user $1, 0 while the account is being erased, and no row if it is deleted.
const ExistsQuery = `SELECT CASE WHEN erasing_at IS NULL THEN 1 ELSE 0 END FROM users WHERE id = $1`

// User is a person with an account.
type User struct {
	ID, Email, Name, Role string
	Picture               string // "" when there is none

	// SignedOut is when all of the user's tokens were revoked, zero if never.
	SignedOut time.Time
	// Read is when the row was read, by the database's clock, like SignedOut.
	Read time.Time
	// Erasing says that the account is being deleted.
	Erasing bool
}

// ValidFrom is the earliest issue time of a token that is valid after the user's last sign-out. Tokens count in whole
// seconds.
func (u User) ValidFrom() time.Time {
	return u.SignedOut.Add(999 * time.Millisecond).Truncate(time.Second)
}

// columns lists the columns that scan reads.
const columns = `id, email, name, role, COALESCE(picture, ''), COALESCE(signed_out_at, 0), erasing_at IS NOT NULL, now_ms()`

func scan(row db.Scanner) (User, error) {
	var u User
	var signedOut, read int64
	err := row.Scan(&u.ID, &u.Email, &u.Name, &u.Role, &u.Picture, &signedOut, &u.Erasing, &read)
	u.SignedOut, u.Read = db.Time(signedOut), db.Time(read)
	return u, err
}

// Identity names a person at an identity provider.
type Identity struct{ Provider, Subject string }

// Upsert returns the user with this identity, active now, and creates it if necessary. It keeps an existing user's
// name, and replaces the picture and, unless empty, the e-mail address.
func Upsert(ctx context.Context, d *db.DB, who Identity, email, name, picture string) (u User, err error) {
	err = d.InTx(ctx, func(tx *db.Tx) (err error) {
		u, err = scan(tx.QueryRow(ctx, `INSERT INTO users (id, provider, provider_sub, email, name, picture, created_at, last_active_at)
			VALUES ($1, $2, $3, $4, $5, NULLIF($6, ''), now_ms(), now_ms())
			ON CONFLICT (provider, provider_sub) DO UPDATE SET
				email = CASE WHEN excluded.email = '' THEN users.email ELSE excluded.email END,
				picture = excluded.picture,
				last_active_at = excluded.last_active_at
			RETURNING `+columns, uuid.NewString(), who.Provider, who.Subject, email, name, picture))
		return err
	})
	if err != nil {
		return User{}, fmt.Errorf("upsert user: %w", err)
	}
	return u, nil
}

// IdentityOf returns a user's identity at the provider, the zero Identity if there is no such user. It includes
// accounts that are being erased.
func IdentityOf(ctx context.Context, q db.Querier, id string) (Identity, error) {
	var who Identity
	err := q.QueryRow(ctx, `SELECT provider, provider_sub FROM users WHERE id = $1`, id).Scan(&who.Provider, &who.Subject)
	if err != nil && !db.IsNoRows(err) {
		return Identity{}, fmt.Errorf("read identity: %w", err)
	}
	return who, nil
}

// Get returns a user, or ErrDeleted.
func Get(ctx context.Context, q db.Querier, id string) (User, error) {
	u, err := scan(q.QueryRow(ctx, `SELECT `+columns+` FROM users WHERE id = $1 AND erasing_at IS NULL`, id))
	switch {
	case db.IsNoRows(err):
		return User{}, ErrDeleted
	case err != nil:
		return User{}, fmt.Errorf("read user: %w", err)
	}
	return u, nil
}

// Find returns the users with this e-mail (any case), at most one per provider, or the user with this id.
func Find(ctx context.Context, d *db.DB, emailOrID string) ([]User, error) {
	return list(ctx, d, `(id = $1 OR (email <> '' AND `+d.Fold("email")+` = $1)) ORDER BY id`,
		strings.ToLower(strings.TrimSpace(emailOrID)))
}

// Admins returns the users with the admin role, by e-mail.
func Admins(ctx context.Context, d *db.DB) ([]User, error) {
	return list(ctx, d, `role = 'admin' ORDER BY email, id`)
}

func list(ctx context.Context, d *db.DB, which string, args ...any) ([]User, error) {
	out, err := db.All(ctx, d, scan, `SELECT `+columns+` FROM users WHERE erasing_at IS NULL AND `+which, args...)
	if err != nil {
		return nil, fmt.Errorf("look for users: %w", err)
	}
	return out, nil
}

// SetRole gives a user a role. It returns ErrDeleted if there is no such user.
func SetRole(ctx context.Context, tx *db.Tx, id, role string) error {
	return change(ctx, tx, `role = $2`, id, role)
}

// SignOut revokes all of a user's tokens as of now. It reports whether the last sign-out is at least a second ago. It
// returns ErrDeleted if there is no such user.
func SignOut(ctx context.Context, tx *db.Tx, id string) (moved bool, err error) {
	n, err := tx.Exec(ctx, `UPDATE users SET signed_out_at = now_ms() WHERE id = $1 AND erasing_at IS NULL
		AND (signed_out_at IS NULL OR signed_out_at <= now_ms() - 1000)`, id)
	if err != nil || n > 0 {
		return n > 0, err
	}
	return false, change(ctx, tx, `signed_out_at = now_ms()`, id)
}

// BeginErasure ends an account, once: from then on every lookup returns ErrDeleted. It notifies
// [Topic].
func BeginErasure(ctx context.Context, tx *db.Tx, id string) error {
	if err := change(ctx, tx, `erasing_at = now_ms()`, id); err != nil {
		return err
	}
	return tx.Notify(ctx, Topic(id))
}

// Topic is the channel that announces the end of an account.
func Topic(id string) string { return "user/" + id }

// change updates an existing user.
func change(ctx context.Context, tx *db.Tx, what string, args ...any) error {
	n, err := tx.Exec(ctx, `UPDATE users SET `+what+` WHERE id = $1 AND erasing_at IS NULL`, args...)
	if err != nil {
		return fmt.Errorf("change user: %w", err)
	}
	if n == 0 {
		return ErrDeleted
	}
	return nil
}

// EndErasure removes the row of a user whose erasure has begun, and with it all rows that refer to it.
func EndErasure(ctx context.Context, tx *db.Tx, id string) error {
	if _, err := tx.Exec(ctx, `DELETE FROM users WHERE id = $1 AND erasing_at IS NOT NULL`, id); err != nil {
		return fmt.Errorf("delete user: %w", err)
	}
	return nil
}

// Erasing reports whether a user's erasure has begun and not ended.
func Erasing(ctx context.Context, q db.Querier, id string) (bool, error) {
	erasing, err := db.HasRow(ctx, q, `SELECT 1 FROM users WHERE id = $1 AND erasing_at IS NOT NULL`, id)
	if err != nil {
		return false, fmt.Errorf("look for user: %w", err)
	}
	return erasing, nil
}

// ErasingSince returns the users whose erasure began at least age ago and has not ended.
func ErasingSince(ctx context.Context, q db.Querier, age time.Duration) ([]string, error) {
	ids, err := db.Texts(q.Query(ctx, `SELECT id FROM users WHERE erasing_at IS NOT NULL AND erasing_at < now_ms() - $1`, age.Milliseconds()))
	if err != nil {
		return nil, fmt.Errorf("look for unfinished erasures: %w", err)
	}
	return ids, nil
}

// SignedOut returns the users signed out within the given time, and when.
func SignedOut(ctx context.Context, q db.Querier, within time.Duration) (map[string]time.Time, error) {
	out := map[string]time.Time{}
	err := db.Each(ctx, q, func(row *db.Rows) error {
		var id string
		var ms int64
		err := row.Scan(&id, &ms)
		out[id] = time.UnixMilli(ms)
		return err
	}, `SELECT id, signed_out_at FROM users
		WHERE signed_out_at IS NOT NULL AND signed_out_at > (SELECT now_ms()) - $1`, within.Milliseconds())
	if err != nil {
		return nil, fmt.Errorf("look for sign-outs: %w", err)
	}
	return out, nil
}
