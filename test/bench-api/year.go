// The benchmark of a database with a year of jobs: reports, and polls and submissions compared with an empty database.

package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"testing"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/sandbox/api"
	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/benchtest"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/testkit/mediatest"
)

// How many: requests for each report, turns of the two databases, and jobs submitted one after another in a turn.
const (
	reportRequests = 40
	yearTurns      = 3
	yearSubmits    = 8
)

// measureYear measures a service on a database with a year of jobs: every report, and, compared with an empty database,
// the requests of phones and workers.
func (o options) measureYear(t testing.TB) *benchtest.Section {
	r := benchtest.New("bench-admin", "A year of data")
	began := time.Now()
	cluster, err := dbtest.Start(t.Context(), "shared_buffers = 2GB", "maintenance_work_mem = 512MB", "work_mem = 16MB", "max_wal_size = 8GB",
		"max_parallel_maintenance_workers = 0", "autovacuum = on", "autovacuum_naptime = 10s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Stop() }) // the results are known by then
	for key, value := range map[string]string{dbtest.EnvURL: cluster.URL, "CUTROOM_TEST_DB": "postgres"} {
		if err := os.Setenv(key, value); err != nil {
			t.Fatal(err)
		}
	}
	empty, year := startYear(t, 0), startYear(t, o.jobs)
	var size string
	if err := year.rows.QueryRow(t.Context(), `SELECT pg_size_pretty(pg_database_size(current_database()))`).Scan(&size); err != nil {
		t.Fatal(err)
	}
	r.Say(`PostgreSQL with %d jobs of a year, half of them separations, %d users, and a purchase for every %d jobs:
%s in all. It was filled in %s. The service, PostgreSQL (2 GB of shared buffers, no fsync) and the driver
share the machine.

**Reports**, %d requests each, one at a time, by the driver's clock; ranges are of 90 days, the widest there is.`,
		o.jobs, yearUsers, yearPurchase, size,
		time.Since(began).Round(time.Second), reportRequests)
	year.reports(t, r)
	for range yearTurns {
		for _, s := range []*yearService{empty, year} {
			s.turn(t, o)
		}
	}
	r.Say(`**Everything else** beside a service on an empty database of the same cluster, in %d turns. Status requests as in
[the API](#the-api), %v a turn; submissions one after the other, %d of each kind a turn, medians. A claim is from the row to its
worker by the database's clock.`,
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
	return r
}

func middle(all []float64) float64 {
	slices.Sort(all)
	return benchtest.Quantile(all, 50)
}

// yearService is a service and its database.
type yearService struct {
	*apitest.Server
	rows  *db.DB
	sound string
	polls [2][]float64 // requests per second in each turn
	took  [4][]float64 // milliseconds
}

// startYear starts a service on a database with the given number of jobs.
func startYear(t testing.TB, jobs int64) *yearService {
	address, user, password := dbtest.URL(t)
	y := &yearService{rows: dbtest.Open(t, db.Options{URL: address, User: user, Password: password, MaxPool: 4}),
		sound: mediatest.Tone(t, 440, time.Second)}
	if jobs > 0 {
		if err := fillYear(t.Context(), y.rows, jobs); err != nil {
			t.Fatalf("fill: %v", err)
		}
	}
	y.Server = apitest.Start(t, apitest.Replicas(1), apitest.Bucket(false), apitest.Env("DATABASE_URL", address), apitest.Env("DB_USER", user),
		apitest.Env("DB_PASSWORD", password))
	return y
}

// reports asks for every report.
func (y *yearService) reports(t testing.TB, r *benchtest.Section) {
	admin := y.Admin(t)
	var busiest, job string
	var jobs int64
	if err := y.rows.QueryRow(t.Context(), `SELECT user_id, MAX(id), COUNT(*) FROM jobs WHERE kind = 'render' GROUP BY user_id
		ORDER BY COUNT(*) DESC LIMIT 1`).Scan(&busiest, &job, &jobs); err != nil {
		t.Fatal(err)
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
			if err := ask(http.DefaultClient, admin, "/api/v2/admin/"+report.path); err != nil {
				t.Fatalf("%s: %v", report.name, err)
			}
			took = append(took, time.Since(asked))
		}
		slices.Sort(took)
		r.Row("%s | %s | %s", report.name, benchtest.Median(took), benchtest.Millis(took[len(took)-1]))
	}
}

// turn submits jobs and asks for the last one's status.
func (y *yearService) turn(t testing.TB, o options) {
	u := y.SignIn(t, apitest.Credits(50))
	for i, kind := range []struct {
		path, status string
		form         []apitest.Part
		wait         func(t testing.TB, id string)
	}{
		{"/api/v2/render", "/status", apitest.RenderForm(t, soundAlone, apitest.File("video", y.sound)), u.WaitRendered},
		{"/api/v2/separate", "", apitest.SeparationForm(y.sound), func(t testing.TB, id string) { u.WaitReady(t, id) }},
	} {
		var address string
		for range yearSubmits {
			began := time.Now()
			var job struct{ JobID string }
			// Without the checks of apitest, which take longer than the answer.
			if _, err := (&api.Client{Base: y.URL, HTTP: http.DefaultClient}).Call(context.Background(), api.Request{Method: http.MethodPost,
				Path: kind.path, Token: u.Token, Form: kind.form}, &job); err != nil {
				t.Fatal(err)
			}
			y.took[2*i] = append(y.took[2*i], float64(time.Since(began).Microseconds())/1000)
			kind.wait(t, job.JobID)
			claimed := dbtest.Number(t, y.rows, `SELECT started_at - created_at FROM jobs WHERE id = $1`, job.JobID)
			y.took[2*i+1] = append(y.took[2*i+1], float64(claimed))
			address = kind.path + "/" + job.JobID + kind.status
		}
		y.polls[i] = append(y.polls[i], o.measure(t, u, address).perSecond)
	}
}
