package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/uuid"

	"cutroom/internal/account"
	"cutroom/internal/benchtest"
	"cutroom/internal/db"
	"cutroom/internal/dbtest"
	"cutroom/internal/sandbox"
)

// Of each: requests for a report, turns of the two databases, and jobs submitted
// one after the other in a turn.
const (
	reportRequests = 40
	yearTurns      = 3
	yearSubmits    = 8
)

// measureYear measures a service on a database with a year of jobs: every report,
// and beside an empty database what phones and workers ask.
func measureYear(ctx context.Context, o options, binary, dir string, world *sandbox.World) (err error) {
	r := benchtest.New("bench-admin", "A year of data")
	began := time.Now()
	cluster, err := dbtest.Start(ctx, "shared_buffers = 2GB", "maintenance_work_mem = 512MB", "work_mem = 16MB", "max_wal_size = 8GB",
		"max_parallel_maintenance_workers = 0", "autovacuum = on")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	var services [2]yearService
	for i, jobs := range []int64{0, o.jobs} {
		s := &services[i]
		if err := s.start(ctx, binary, filepath.Join(dir, fmt.Sprint("year-", i)), cluster.URL, world, jobs); err != nil {
			return err
		}
		defer s.stop()
	}
	empty, year := &services[0], &services[1]
	size, calls, err := year.size(ctx)
	if err != nil {
		return err
	}
	r.Say(`PostgreSQL with %d jobs of a year, half of them separations, %d users, a purchase for every %d jobs, and %d provider calls, which
are those of the last 30 days: %s in all. It was filled in %s. The service, PostgreSQL (2 GB of shared buffers, no fsync) and the driver
share the machine.

**Reports**, %d requests each, one at a time, by the driver's clock; ranges are of 90 days, the widest there is.`,
		o.jobs, yearUsers, yearPurchase, calls, size, time.Since(began).Round(time.Second), reportRequests)
	if err := year.reports(ctx, r); err != nil {
		return err
	}
	for range yearTurns {
		for _, s := range []*yearService{empty, year} {
			if err := s.turn(ctx, o); err != nil {
				return err
			}
		}
	}
	r.Say(`**Everything else** beside a service on an empty database of the same cluster, in %d turns. Status requests as in [the API](#the-api),
%v a turn; submissions one after the other, %d of each kind a turn, medians. A claim is from the row to its worker by the database's clock.`,
		yearTurns, o.duration, yearSubmits)
	r.Table("", "empty", "a year", "a year by empty")
	for i, name := range []string{"`GET /render/{id}/status`, requests/s", "`GET /separate/{id}`, requests/s"} {
		a, b := middle(empty.polls[i]), middle(year.polls[i])
		r.Row("%s | %.0f | %.0f | %.2f", name, a, b, b/a)
	}
	for i, name := range []string{"`POST /render`", "render claimed after", "`POST /separate`", "separation claimed after"} {
		a, b := middle(empty.took[i]), middle(year.took[i])
		r.Row("%s | %.1f ms | %.1f ms | %.2f", name, a, b, b/a)
	}
	return r.Save(o.out)
}

func middle(all []float64) float64 {
	slices.Sort(all)
	return benchtest.Quantile(all, 50)
}

// yearService is a service and its database.
type yearService struct {
	*service
	rows   *db.DB
	tokens *account.Tokens
	polls  [2][]float64 // requests a second, of a turn
	took   [4][]float64 // milliseconds
}

func (y *yearService) start(ctx context.Context, binary, dir, cluster string, world *sandbox.World, jobs int64) error {
	env, err := createDatabase(ctx, cluster)
	if err != nil {
		return err
	}
	o := database{env: env}.options()
	o.MaxPool = 4
	if y.rows, err = db.Open(ctx, o); err != nil {
		return err
	}
	if err := y.rows.Migrate(ctx); err != nil {
		return err
	}
	if jobs > 0 {
		if err := fillYear(ctx, y.rows, jobs); err != nil {
			return fmt.Errorf("fill: %w", err)
		}
	}
	y.tokens = account.NewTokens(world.Env()["AUTH_JWT_SECRET"], time.Hour)
	y.service, err = startService(ctx, binary, dir, world, env)
	return err
}

func (y *yearService) stop() {
	if y.service != nil {
		y.service.stop()
	}
	_ = y.rows.Close() // what is measured is known by now
}

func (y *yearService) size(ctx context.Context) (size string, calls int64, err error) {
	err = y.rows.QueryRow(ctx, `SELECT pg_size_pretty(pg_database_size(current_database())), (SELECT COUNT(*) FROM provider_calls)`).Scan(&size, &calls)
	return size, calls, err
}

// somebody makes a user with credits, or an admin.
func (y *yearService) somebody(ctx context.Context, role string) (token string, err error) {
	id := uuid.NewString()
	_, err = y.rows.Exec(ctx, `INSERT INTO users (id, provider, provider_sub, role, created_at, last_active_at)
		VALUES ($1, 'provider_a', $1, $2, now_ms(), now_ms())`, id, role)
	for _, credits := range []string{`INSERT INTO credit_balances VALUES ($1, 100)`,
		`INSERT INTO credit_ledger VALUES ('signup-' || $1, $1, 'signup', 100, now_ms())`} {
		if err == nil {
			_, err = y.rows.Exec(ctx, credits, id)
		}
	}
	if err != nil {
		return "", err
	}
	token, _, err = y.tokens.Issue(account.Principal{UserID: id, Role: role})
	return token, err
}

// reports asks for every report.
func (y *yearService) reports(ctx context.Context, r *benchtest.Section) error {
	token, err := y.somebody(ctx, account.RoleAdmin)
	if err != nil {
		return err
	}
	var busiest, job string
	err = y.rows.QueryRow(ctx, `SELECT user_id, MAX(id) FROM jobs WHERE kind = 'render' GROUP BY user_id ORDER BY COUNT(*) DESC LIMIT 1`).Scan(&busiest, &job)
	if err != nil {
		return err
	}
	var jobs int64
	if err := y.rows.QueryRow(ctx, `SELECT COUNT(*) FROM jobs WHERE user_id = $1 AND kind = 'render'`, busiest).Scan(&jobs); err != nil {
		return err
	}
	span := "?from=" + time.Now().AddDate(0, 0, -89).UTC().Format(time.DateOnly)
	r.Table("report", "median", "slowest")
	for _, report := range []struct{ name, path string }{
		{"overview", "overview"},
		{"stats/daily", "stats/daily" + span},
		{"stats/signups", "stats/signups" + span},
		{"stats/external-calls", "stats/external-calls" + span},
		{"stats/duration-histogram", "stats/duration-histogram"},
		{"jobs/active", "jobs/active"},
		{"jobs/status-breakdown", "jobs/status-breakdown"},
		{"revenue", "revenue"},
		{"revenue/daily", "revenue/daily" + span},
		{"users", "users"},
		{"users, a page of 200 far back", "users?limit=200&offset=90000"},
		{"users, by a part of a name", "users?q=" + url.QueryEscape("son f00")},
		{"users, by a job", "users?q=" + job},
		{fmt.Sprintf("users/{userId}/jobs, of one with %d renders", jobs), "users/" + busiest + "/jobs"},
		{"users/{userId}/ledger", "users/" + busiest + "/ledger"},
		{"users/{userId}/purchases", "users/" + busiest + "/purchases"},
	} {
		var took []time.Duration
		for range reportRequests {
			asked := time.Now()
			if err := ask(http.DefaultClient, y.url+"/api/v2/admin/"+report.path, token); err != nil {
				return fmt.Errorf("%s: %w", report.name, err)
			}
			took = append(took, time.Since(asked))
		}
		slices.Sort(took)
		r.Row("%s | %s | %s", report.name, benchtest.Millis(benchtest.Quantile(took, 50)), benchtest.Millis(took[len(took)-1]))
	}
	return nil
}

// turn submits jobs and asks for the last one's status.
func (y *yearService) turn(ctx context.Context, o options) error {
	user, err := y.somebody(ctx, account.RoleUser)
	if err != nil {
		return err
	}
	for i, kind := range []struct {
		path, file, text, content, status, ended string
	}{
		{"/api/v2/render", "video", "config", `{"videoDurationMs":1000,"outputKind":"audio"}`, "/status", "COMPLETED"},
		{"/api/v2/separate", "file", "spec", `{}`, "", "READY"},
	} {
		var address string
		for range yearSubmits {
			began := time.Now()
			id, err := y.submit(kind.path, user, kind.file, kind.text, kind.content)
			if err != nil {
				return err
			}
			y.took[2*i] = append(y.took[2*i], float64(time.Since(began).Microseconds())/1000)
			address = kind.path + "/" + id + kind.status
			if err := y.wait(address, user, kind.ended); err != nil {
				return err
			}
			var claimed float64
			if err := y.rows.QueryRow(ctx, `SELECT started_at - created_at FROM jobs WHERE id = $1`, id).Scan(&claimed); err != nil {
				return err
			}
			y.took[2*i+1] = append(y.took[2*i+1], claimed)
		}
		l, err := measure(o, y.child.PID(), y.url+address, user)
		if err != nil {
			return err
		}
		y.polls[i] = append(y.polls[i], l.perSecond)
	}
	return nil
}
