package main

import (
	"context"
	"time"

	"cutroom/internal/domain/account"
	"cutroom/internal/work/audit"
	"cutroom/internal/work/user"
)

const (
	granted = "has the admin role. It is in the user's token from the next sign-in on."
	revoked = "no longer has the admin role."
)

// setRole gives a user a role. done is the sentence to print afterwards.
func setRole(role, done string) runFunc {
	return func(ctx context.Context, v *invocation) error {
		u, err := account.SetRole(ctx, v.db, v.args[0], role, actor())
		if err != nil {
			return err
		}
		return v.say(roleRows(u), "%s (%s) %s", u.ID, u.Email, done)
	}
}

func listAdmins(ctx context.Context, v *invocation) error {
	users, err := user.Admins(ctx, v.db)
	if err != nil {
		return err
	}
	if len(users) == 0 {
		return v.say([]roleRow{}, "Nobody has the admin role. `cutroom admin grant` gives it.")
	}
	return v.print(roleRows(users...))
}

// roleRow is a user with a role.
type roleRow struct {
	UserID string `json:"userId"`
	Email  string `json:"email"`
	Name   string `json:"name"`
	Role   string `json:"role"`
}

func roleRows(users ...user.User) (rows []roleRow) {
	for _, u := range users {
		rows = append(rows, roleRow{u.ID, u.Email, u.Name, u.Role})
	}
	return rows
}

// tokenLife is the lifetime of a token from the command line.
const tokenLife = 15 * time.Minute

func issueToken(ctx context.Context, v *invocation) error {
	u, err := v.find(ctx)
	if err != nil {
		return err
	}
	tokens := account.NewTokens(v.cfg.Auth.JWTSecret.Reveal(), tokenLife)
	token, err := account.IssueAdminToken(ctx, v.db, tokens, u.ID, actor())
	if err != nil {
		return err
	}
	return v.say(map[string]string{"accessToken": token}, "%s", token)
}

func showAudit(ctx context.Context, v *invocation) error {
	f := audit.Filter{Since: v.since}
	if f.Since.IsZero() {
		f.Limit = shortList
	}
	entries, err := audit.List(ctx, v.db, f)
	if err != nil {
		return err
	}
	return v.print(entries)
}

// showErasures prints the ids of deleted accounts, one per line. Use it for a loop over `cutroom user erase` after a
// restore.
func showErasures(ctx context.Context, v *invocation) error {
	entries, err := audit.List(ctx, v.db, audit.Filter{Action: audit.AccountErased, Since: v.since})
	if err != nil {
		return err
	}
	ids := make([]string, 0, len(entries))
	for _, e := range entries {
		ids = append(ids, e.Target)
	}
	return v.print(ids)
}
