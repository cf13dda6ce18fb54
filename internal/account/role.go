package account

import (
	"context"
	"fmt"
	"strings"

	"cutroom/internal/db"
)

// SetRole gives the user with this e-mail (any case) or UUID a role, effective
// at the next sign-in, and returns the users changed. An e-mail may belong to
// one user per provider; all of them get the role.
func SetRole(ctx context.Context, d *db.DB, emailOrID, role string) ([]User, error) {
	var out []User
	err := d.InTx(ctx, func(tx *db.Tx) error {
		rows, err := tx.Query(ctx, `UPDATE users SET role = $1
			WHERE erasing_at IS NULL AND (id = $2 OR (email <> '' AND lower(email) = $2))
			RETURNING id, email, name, role`, role, strings.ToLower(strings.TrimSpace(emailOrID)))
		if err != nil {
			return fmt.Errorf("set role: %w", err)
		}
		out, err = scanUsers(rows)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no user has the e-mail or id %q", emailOrID)
	}
	return out, nil
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

type userRows interface {
	Next() bool
	Scan(...any) error
	Close() error
	Err() error
}

func scanUsers(rows userRows) ([]User, error) {
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
