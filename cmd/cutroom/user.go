package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"cutroom/internal/account"
	"cutroom/internal/admin"
	"cutroom/internal/app"
	"cutroom/internal/audit"
	"cutroom/internal/config"
	"cutroom/internal/db"
	"cutroom/internal/quota"
	"cutroom/internal/user"
)

// everything is a page with all rows.
var everything = admin.Page{Limit: 1 << 32}

// userReport is what support sees of a user.
type userReport struct {
	admin.User
	Owed     int64           `json:"owed"` // unsettled credits of reversed purchases
	Refusals []admin.Refusal `json:"refusals"`
	// Others are the other users who presented the order.
	Others    []string            `json:"alsoPresentedBy,omitempty"`
	Ledger    []admin.LedgerEntry `json:"ledger"`
	Purchases []admin.Purchase    `json:"purchases"`
	Jobs      []admin.UserJob     `json:"jobs"`
	Assets    []admin.Asset       `json:"assets"`
	Usage     quota.Report        `json:"usage"`
	Audit     []audit.Entry       `json:"audit"`
}

func (v *invocation) usageOf(ctx context.Context, d *db.DB, userID string) (quota.Report, error) {
	cfg, _, err := v.load()
	if err != nil {
		return quota.Report{}, err
	}
	return app.NewQuota(cfg).Report(ctx, d, userID)
}

// showUser shows the user with the id in its argument, or the user of an order: its buyer, or else the last
// user whose receipt for it was refused.
func showUser(ctx context.Context, v *invocation) error {
	return v.withDatabase(ctx, func(d *db.DB) error {
		var others []string
		u, err := account.Find(ctx, d, v.args[0])
		if errors.Is(err, account.ErrUnknown) {
			var found admin.Order
			if found, err = admin.New(d).FindOrder(ctx, v.args[0]); err == nil {
				u.ID, others, err = presenter(v.args[0], found)
			}
		}
		if err != nil {
			return err
		}
		p, err := readUserReport(ctx, d, u.ID)
		if err != nil {
			return err
		}
		p.Others = others
		if p.Usage, err = v.usageOf(ctx, d, u.ID); err != nil {
			return err
		}
		return v.print(p)
	})
}

// presenter selects the user to show for an order, and lists the other users who presented it.
func presenter(order string, o admin.Order) (userID string, others []string, err error) {
	switch {
	case len(o.Users) > 0:
		return o.Users[0], o.Users[1:], nil
	case !o.PaidAt.IsZero():
		return "", nil, fmt.Errorf("order %s was paid out on %s to an account that is deleted", order, o.PaidAt)
	}
	if strings.Contains(order, "@") {
		return "", nil, fmt.Errorf("%w: nobody has the e-mail %q", account.ErrUnknown, order)
	}
	return "", nil, fmt.Errorf("%w: nobody has the id %q or presented an order of this number within 90 days. If it is an order that "+
		"the app never presented, verify it for the user who paid: cutroom purchase verify <platform> %s --user <email>",
		account.ErrUnknown, order, order)
}

func readUserReport(ctx context.Context, d *db.DB, id string) (p userReport, err error) {
	reports := admin.New(d)
	users, _, err := reports.Users(ctx, id, admin.Page{Limit: 1})
	if err != nil {
		return p, err
	}
	if len(users) == 0 {
		return p, errors.New("the account was deleted just now")
	}
	p.User = users[0]
	if p.Ledger, _, err = reports.Ledger(ctx, id, everything); err != nil {
		return p, err
	}
	if p.Purchases, _, err = reports.Purchases(ctx, id, everything); err != nil {
		return p, err
	}
	for _, sale := range p.Purchases {
		p.Owed += sale.Owed
	}
	if p.Refusals, _, err = reports.Refusals(ctx, id, everything); err != nil {
		return p, err
	}
	if p.Jobs, _, err = reports.UserJobs(ctx, id, everything); err != nil {
		return p, err
	}
	if p.Assets, _, err = reports.Assets(ctx, id, everything); err != nil {
		return p, err
	}
	p.Audit, err = audit.List(ctx, d, audit.Filter{Target: id})
	return p, err
}

func exportUser(ctx context.Context, v *invocation) error {
	return v.withUser(ctx, func(d *db.DB, u user.User) error {
		data, err := admin.New(d).Export(ctx, u.ID)
		if err != nil {
			return err
		}
		return v.printJSON(data)
	})
}

func signOutUser(ctx context.Context, v *invocation) error {
	return v.withUser(ctx, func(d *db.DB, u user.User) error {
		if err := account.SignOut(ctx, d, u.ID, actor()); err != nil {
			return err
		}
		time.Sleep(account.SignOutDelay) // after this, every replica has seen the sign-out
		return v.say(map[string]string{"userId": u.ID}, "Every access token issued to %s until now is invalid.", u.ID)
	})
}

func eraseUser(ctx context.Context, v *invocation) error {
	var id string
	err := v.withInstallation(ctx, func(cfg config.Config, d *db.DB, log *slog.Logger) error {
		u, err := account.Find(ctx, d, v.args[0])
		if err != nil {
			return err
		}
		a, err := app.New(ctx, cfg, versionString(), log)
		if err != nil {
			return err
		}
		id = u.ID
		return errors.Join(a.Accounts().Delete(ctx, id, actor()), a.Close())
	})
	if err != nil {
		return err
	}
	return v.say(map[string]string{"userId": id}, "The account %s and its files are deleted.", id)
}
