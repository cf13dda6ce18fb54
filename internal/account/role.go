package account

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"cutroom/internal/audit"
	"cutroom/internal/db"
	"cutroom/internal/fault"
)

// ErrUnknown is in the chain of errors about a user who does not exist.
var ErrUnknown = errors.New("no such user")

func unknown(emailOrID string) error {
	return fmt.Errorf("%w: nobody has the e-mail or id %q, and an account begins with its first sign-in", ErrUnknown, emailOrID)
}

// Find returns the user with this e-mail (any case) or UUID. An e-mail may
// belong to one user per provider; which of them is meant is not guessed.
func Find(ctx context.Context, d *db.DB, emailOrID string) (User, error) {
	rows, err := d.Query(ctx, `SELECT id, email, name, role FROM users
		WHERE erasing_at IS NULL AND (id = $1 OR (email <> '' AND `+d.Fold("email")+` = $1)) ORDER BY id`,
		strings.ToLower(strings.TrimSpace(emailOrID)))
	if err != nil {
		return User{}, fmt.Errorf("look for user: %w", err)
	}
	users, err := scanUsers(rows)
	switch {
	case err != nil:
		return User{}, err
	case len(users) == 0:
		return User{}, unknown(emailOrID)
	case len(users) > 1:
		ids := make([]string, len(users))
		for i, u := range users {
			ids[i] = u.ID
		}
		return User{}, fmt.Errorf("%d users have the e-mail %q; name one by its id: %s", len(users), emailOrID, strings.Join(ids, ", "))
	}
	return users[0], nil
}

// ErrNotAdmin answers a user who is not an admin.
var ErrNotAdmin = fault.New(fault.Forbidden, "admin_required")

// RequireAdmin answers ErrNotAdmin unless the user is an admin at this moment,
// whatever an older token says.
func (s *Service) RequireAdmin(ctx context.Context, userID string) error {
	var one int
	err := s.db.QueryRow(ctx, `SELECT 1 FROM users WHERE id = $1 AND role = 'admin' AND erasing_at IS NULL`, userID).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNotAdmin
	}
	if err != nil {
		return fmt.Errorf("look for admin: %w", err)
	}
	return nil
}

// SetRole gives a user a role, on behalf of actor, and returns the user. A role
// given counts from the next sign-in, one taken away is gone at once.
func SetRole(ctx context.Context, d *db.DB, emailOrID, role, actor string) (User, error) {
	u, err := Find(ctx, d, emailOrID)
	if err != nil {
		return User{}, err
	}
	action := audit.RoleGranted
	if role != RoleAdmin {
		action = audit.RoleRevoked
	}
	err = d.InTx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE users SET role = $2 WHERE id = $1 AND erasing_at IS NULL`, u.ID, role)
		if err != nil {
			return fmt.Errorf("set role: %w", err)
		}
		if n == 0 {
			return unknown(emailOrID)
		}
		return audit.Record(ctx, tx, audit.Entry{Actor: actor, Action: action, Target: u.ID})
	})
	u.Role = role
	return u, err
}

// Admins lists the users with the admin role, by e-mail.
func Admins(ctx context.Context, d *db.DB) ([]User, error) {
	rows, err := d.Query(ctx, `SELECT id, email, name, role FROM users
		WHERE role = 'admin' AND erasing_at IS NULL ORDER BY email, id`)
	if err != nil {
		return nil, fmt.Errorf("list admins: %w", err)
	}
	return scanUsers(rows)
}

func scanUsers(rows *db.Rows) ([]User, error) {
	defer rows.Close()
	var out []User
	for rows.Next() {
		var u User
		if err := rows.Scan(&u.ID, &u.Email, &u.Name, &u.Role); err != nil {
			return nil, fmt.Errorf("read user: %w", err)
		}
		out = append(out, u)
	}
	return out, rows.Err()
}

// IssueAdminToken mints a token for a user who is an admin, on behalf of actor.
func IssueAdminToken(ctx context.Context, d *db.DB, tokens *Tokens, userID, actor string) (token string, err error) {
	err = d.InTx(ctx, func(tx *db.Tx) error {
		p := Principal{UserID: userID, Role: RoleAdmin}
		var signedOut sql.NullInt64
		err := tx.QueryRow(ctx, `SELECT signed_out_at FROM users WHERE id = $1 AND role = 'admin' AND erasing_at IS NULL`, userID).Scan(&signedOut)
		if errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("%s is no admin: `cutroom admin grant` first", userID)
		}
		if err != nil {
			return fmt.Errorf("look for admin: %w", err)
		}
		p.Issued = validFrom(signedOut)
		var expires time.Time
		if token, expires, err = tokens.Issue(p); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Entry{Actor: actor, Action: audit.TokenIssued, Target: userID,
			Detail: audit.Detail{"expires": expires.UTC().Format(time.RFC3339)}})
	})
	return token, err
}
