package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"cutroom/internal/app"
	"cutroom/internal/base/db"
	"cutroom/internal/domain/account"
	"cutroom/internal/domain/admin"
	"cutroom/internal/work/audit"
	"cutroom/internal/work/quota"
)

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

// showUser shows the user with the id in its argument, or the user of an order: its buyer, or else the last user whose
// receipt for it was refused.
func showUser(ctx context.Context, v *invocation) error {
	var others []string
	u, err := v.find(ctx)
	if errors.Is(err, account.ErrUnknown) {
		var found admin.Order
		if found, err = admin.New(v.db).FindOrder(ctx, v.args[0]); err == nil {
			u.ID, others, err = presenter(v.args[0], found)
		}
	}
	if err != nil {
		return err
	}
	p, err := readUserReport(ctx, v.db, u.ID)
	if err != nil {
		return err
	}
	p.Others = others
	if p.Usage, err = app.NewQuota(v.cfg).Report(ctx, v.db, u.ID); err != nil {
		return err
	}
	return v.print(p)
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
	if err := cmp.Or(
		readAll(ctx, &p.Ledger, reports.Ledger, id), readAll(ctx, &p.Purchases, reports.Purchases, id),
		readAll(ctx, &p.Refusals, reports.Refusals, id), readAll(ctx, &p.Jobs, reports.UserJobs, id),
		readAll(ctx, &p.Assets, reports.Assets, id)); err != nil {
		return p, err
	}
	for _, sale := range p.Purchases {
		p.Owed += sale.Owed
	}
	p.Audit, err = audit.List(ctx, d, audit.Filter{Target: id})
	return p, err
}

// readAll reads all rows of a user's report.
func readAll[Row any](ctx context.Context, into *[]Row,
	report func(context.Context, string, admin.Page) ([]Row, int64, error), userID string) (err error) {
	*into, _, err = report(ctx, userID, admin.Page{Limit: 1 << 32})
	return err
}

func exportUser(ctx context.Context, v *invocation) error {
	u, err := v.find(ctx)
	if err != nil {
		return err
	}
	data, err := admin.New(v.db).Export(ctx, u.ID)
	if err != nil {
		return err
	}
	return v.printJSON(data)
}

func signOutUser(ctx context.Context, v *invocation) error {
	u, err := v.find(ctx)
	if err != nil {
		return err
	}
	if err := account.SignOut(ctx, v.db, u.ID, actor()); err != nil {
		return err
	}
	time.Sleep(account.SignOutDelay) // after this, every replica has seen the sign-out
	return v.say(map[string]string{"userId": u.ID}, "Every access token issued to %s until now is invalid.", u.ID)
}

func eraseUser(ctx context.Context, v *invocation) error {
	u, err := v.find(ctx)
	if err != nil {
		return err
	}
	a, err := app.New(ctx, v.cfg, versionString(), v.log)
	if err != nil {
		return err
	}
	if err := errors.Join(a.Accounts().Delete(ctx, u.ID, actor()), a.Close()); err != nil {
		return err
	}
	return v.say(map[string]string{"userId": u.ID}, "The account %s and its files are deleted.", u.ID)
}
