package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"cutroom/internal/account"
	"cutroom/internal/app"
)

// adminRole grants, revokes and lists the admin role in the configured database.
func adminRole(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	wanted := map[string]int{"grant": 2, "revoke": 2, "list": 1}
	if len(args) == 0 || wanted[args[0]] != len(args) {
		return errUsage
	}
	cfg, log, err := load(stderr)
	if err != nil {
		return err
	}
	d, err := app.OpenDatabase(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	var users []account.User
	switch args[0] {
	case "grant":
		users, err = account.SetRole(ctx, d, args[1], account.RoleAdmin)
	case "revoke":
		users, err = account.SetRole(ctx, d, args[1], account.RoleUser)
	case "list":
		users, err = account.Admins(ctx, d)
	}
	if err != nil {
		return err
	}
	for _, u := range users {
		fmt.Fprintf(stdout, "%s\t%s\t%s\t%s\n", u.ID, u.Email, u.Name, u.Role)
	}
	if args[0] != "list" {
		fmt.Fprintln(stdout, "The change takes effect at the user's next sign-in.")
	}
	return nil
}
