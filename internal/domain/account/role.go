package account

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/work/audit"
	"cutroom/internal/work/user"
)

// ErrUnknown is wrapped by errors about a user who does not exist.
var ErrUnknown = errors.New("no such user")

// Find returns the user with this e-mail (any case) or UUID. If users of several providers share the e-mail, it returns
// an error that lists their ids.
func Find(ctx context.Context, d *db.DB, emailOrID string) (user.User, error) {
	users, err := user.Find(ctx, d, emailOrID)
	switch {
	case err != nil:
		return user.User{}, err
	case len(users) == 0:
		return user.User{}, fmt.Errorf("%w: nobody has the e-mail or id %q. The first sign-in to the app creates an account",
			ErrUnknown, emailOrID)
	case len(users) > 1:
		ids := make([]string, len(users))
		for i, u := range users {
			ids[i] = u.ID
		}
		return user.User{}, fmt.Errorf("%d users have the e-mail %q; name one by its id: %s", len(users), emailOrID, strings.Join(ids, ", "))
	}
	return users[0], nil
}

// SetRole gives a user a role, on behalf of actor, and returns the user. A grant takes effect at the next sign-in, a
// revocation at once.
func SetRole(ctx context.Context, d *db.DB, emailOrID, role, actor string) (user.User, error) {
	u, err := Find(ctx, d, emailOrID)
	if err != nil {
		return user.User{}, err
	}
	action := audit.RoleGranted
	if role != RoleAdmin {
		action = audit.RoleRevoked
	}
	err = d.InTx(ctx, func(tx *db.Tx) error {
		if err := user.SetRole(ctx, tx, u.ID, role); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Entry{Actor: actor, Action: action, Target: u.ID})
	})
	u.Role = role
	return u, err
}

// IssueAdminToken mints a token for a user who is an admin, on behalf of actor.
func IssueAdminToken(ctx context.Context, d *db.DB, tokens *Tokens, userID, actor string) (token string, err error) {
	err = d.InTx(ctx, func(tx *db.Tx) error {
		u, err := user.Get(ctx, tx, userID)
		if errors.Is(err, user.ErrDeleted) || err == nil && u.Role != RoleAdmin {
			return fmt.Errorf("%s is no admin: `cutroom admin grant` first", userID)
		}
		if err != nil {
			return err
		}
		var expires time.Time
		if token, expires, err = tokens.Issue(Principal{UserID: userID, Role: RoleAdmin, Issued: issued(u)}); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Entry{Actor: actor, Action: audit.TokenIssued, Target: userID,
			Detail: audit.Detail{"expires": expires.UTC().Format(time.RFC3339)}})
	})
	return token, err
}
