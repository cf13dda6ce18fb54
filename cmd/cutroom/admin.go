package main

import (
	"context"
	"fmt"
	"io"

	"cutroom/internal/account"
	"cutroom/internal/db"
	"cutroom/internal/user"
)

func grantRole(ctx context.Context, v *invocation) error {
	return v.setRole(ctx, account.RoleAdmin, "The role is in the user's token from the next sign-in on.")
}

func revokeRole(ctx context.Context, v *invocation) error {
	return v.setRole(ctx, account.RoleUser, "The role is revoked.")
}

func (v *invocation) setRole(ctx context.Context, role, done string) error {
	return v.withDatabase(ctx, func(d *db.DB) error {
		u, err := account.SetRole(ctx, d, v.args[0], role, actor())
		if err != nil {
			return err
		}
		if err := v.printUsers([]user.User{u}); err != nil || v.json {
			return err
		}
		_, err = fmt.Fprintln(v.stdout, done)
		return err
	})
}

func listAdmins(ctx context.Context, v *invocation) error {
	return v.withDatabase(ctx, func(d *db.DB) error {
		users, err := user.Admins(ctx, d)
		if err != nil {
			return err
		}
		if len(users) == 0 && !v.json {
			_, err = fmt.Fprintln(v.stdout, "Nobody has the admin role. `cutroom admin grant` gives it.")
			return err
		}
		return v.printUsers(users)
	})
}

func (v *invocation) printUsers(users []user.User) error {
	type row struct {
		UserID string `json:"userId"`
		Email  string `json:"email"`
		Name   string `json:"name"`
		Role   string `json:"role"`
	}
	rows := make([]row, 0, len(users))
	for _, u := range users {
		rows = append(rows, row{u.ID, u.Email, u.Name, u.Role})
	}
	return v.print(rows, func(w io.Writer) {
		for _, r := range rows {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.UserID, r.Email, r.Name, r.Role)
		}
	})
}
