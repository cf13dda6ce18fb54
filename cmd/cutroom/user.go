package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"cutroom/internal/account"
	"cutroom/internal/admin"
	"cutroom/internal/app"
	"cutroom/internal/audit"
	"cutroom/internal/db"
	"cutroom/internal/quota"
	"cutroom/internal/user"
)

// screen is the number of rows of each kind that fit on a screen. --json prints all.
const screen = 20

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
		return v.print(p, p.table)
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

func (p userReport) table(w io.Writer) {
	fmt.Fprintf(w, "id\t%s\ne-mail\t%s\nname\t%s\nprovider\t%s\nrole\t%s\n", p.UserID, p.Email, p.Name, p.Provider, p.Role)
	fmt.Fprintf(w, "first sign-in\t%s\nlast activity\t%s\nbalance\t%d credits\n", p.CreatedAt, p.LastActivityAt, p.Balance)
	fmt.Fprintf(w, "waiting\t%d jobs%s\n", p.Usage.WaitingJobs, of(p.Usage.MaxWaitingJobs, func(n int64) string { return strconv.FormatInt(n, 10) }))
	fmt.Fprintf(w, "stored\t%s%s\n", megabytes(p.Usage.StoredBytes), of(p.Usage.MaxStoredBytes, megabytes))
	if p.Owed > 0 {
		fmt.Fprintf(w, "owed\t%d credits of purchases that the store took back\n", p.Owed)
	}
	if len(p.Others) > 0 {
		fmt.Fprintf(w, "order also presented by\t%s\n", strings.Join(p.Others, ", "))
	}
	section(w, "ledger", p.Ledger, func(e admin.LedgerEntry) {
		fmt.Fprintf(w, "%s\t%s\t%+d\t%s\n", e.CreatedAt, e.Kind, e.Credits, e.RefID)
	})
	section(w, "purchases", p.Purchases, func(b admin.Purchase) {
		note := ""
		if b.BySupport {
			note = "granted by support "
		}
		if !b.ReversedAt.IsZero() {
			note += fmt.Sprintf("taken back %s, %d owed", b.ReversedAt, b.Owed)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d credits\t%s\n", b.CreatedAt, b.Platform, b.OrderID, b.ProductID, b.Credits, note)
	})
	section(w, "presented without credits", p.Refusals, func(r admin.Refusal) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d attempts\n", r.CreatedAt, r.Platform, r.OrderID, r.ProductID, r.Reason, r.Attempts)
		fmt.Fprintf(w, "\t%s\n", r.Meaning)
		if r.Command != "" {
			fmt.Fprintf(w, "\t%s\n", r.Command)
		}
	})
	section(w, "jobs", p.Jobs, func(j admin.UserJob) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", j.CreatedAt, j.JobType, j.JobID, j.Status, j.Error)
	})
	section(w, "assets", p.Assets, func(a admin.Asset) {
		fmt.Fprintf(w, "%s\t%s\t%s\tlast used %s\n", a.CreatedAt, a.AssetKey, megabytes(a.SizeBytes), a.LastUsedAt)
	})
	section(w, "audit", p.Audit, func(e audit.Entry) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", admin.Time{Time: e.Time}, e.Action, e.Actor, e.Detail)
	})
}

// megabytes formats a size in the unit of the configuration: 1 MB is 1048576 bytes.
func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/(1<<20)) }

// of formats a limit, to stand after the value that it limits; nil means no limit.
func of(limit *int64, write func(int64) string) string {
	if limit == nil {
		return ", no limit"
	}
	return " of " + write(*limit)
}

// section prints the number and the first rows of a list under its name.
func section[Row any](w io.Writer, name string, rows []Row, line func(Row)) {
	fmt.Fprintf(w, "\n%s (%d)\n", name, len(rows))
	for _, row := range rows[:min(len(rows), screen)] {
		line(row)
	}
	if len(rows) > screen {
		fmt.Fprintln(w, "older ones with --json")
	}
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
		return v.done(u.ID, "Every access token issued to %s until now is invalid.", u.ID)
	})
}

func eraseUser(ctx context.Context, v *invocation) error {
	cfg, log, err := v.load()
	if err != nil {
		return err
	}
	cfg.Database.MigrateOnStart = false
	a, err := app.New(ctx, cfg, versionString(), log)
	if err != nil {
		return err
	}
	u, err := account.Find(ctx, a.DB(), v.args[0])
	if err == nil {
		err = a.Accounts().Delete(ctx, u.ID, actor())
	}
	if err = errors.Join(err, a.Close()); err != nil {
		return err
	}
	return v.done(u.ID, "The account %s and its files are deleted.", u.ID)
}

// tokenLife is the lifetime of a token from the command line.
const tokenLife = 15 * time.Minute

func issueToken(ctx context.Context, v *invocation) error {
	return v.withUser(ctx, func(d *db.DB, u user.User) error {
		cfg, _, err := v.load()
		if err != nil {
			return err
		}
		tokens := account.NewTokens(cfg.Auth.JWTSecret.Reveal(), tokenLife)
		token, err := account.IssueAdminToken(ctx, d, tokens, u.ID, actor())
		if err != nil {
			return err
		}
		if v.json {
			return v.printJSON(map[string]string{"accessToken": token})
		}
		_, err = fmt.Fprintln(v.stdout, token)
		return err
	})
}

// withUser is withDatabase for a command whose first argument names a user.
func (v *invocation) withUser(ctx context.Context, use func(*db.DB, user.User) error) error {
	return v.withDatabase(ctx, func(d *db.DB) error {
		u, err := account.Find(ctx, d, v.args[0])
		if err != nil {
			return err
		}
		return use(d, u)
	})
}

// done prints the result of a command about a user, as a sentence or as JSON.
func (v *invocation) done(userID, sentence string, args ...any) error {
	if v.json {
		return v.printJSON(map[string]string{"userId": userID})
	}
	_, err := fmt.Fprintf(v.stdout, sentence+"\n", args...)
	return err
}
