package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"cutroom/internal/account"
	"cutroom/internal/benchtest"
	"cutroom/internal/db"
)

// waiting is what clients cost that wait for a change instead of asking.
type waiting struct {
	database    string
	clients     int
	idle, quiet float64 // transactions a second, without them and with them
	p50, p99    time.Duration
	slowest     time.Duration
}

// each is how many requests of one user may wait.
const each = 4

// waiter is a user with a finished render of their own.
type waiter struct{ token, path, etag string }

// measureWaiting has o.waiting clients wait for renders in which nothing changes,
// counts what the database is asked meanwhile, and then changes every render: a
// download moves the time at which it expires.
func measureWaiting(ctx context.Context, o options, s *service, secret string, d database, film string) (w waiting, err error) {
	w = waiting{database: d.name, clients: o.waiting / each * each}
	rows, err := db.Open(ctx, d.options())
	if err != nil {
		return w, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	users, err := makeWaiters(ctx, rows, s, secret, film, o.waiting/each)
	if err != nil {
		return w, err
	}
	if w.idle, err = transactions(ctx, rows, o.duration); err != nil {
		return w, err
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: o.waiting}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	changed := make([]time.Time, len(users))
	heard := make([]time.Time, w.clients)
	failed := make([]error, w.clients)
	var all sync.WaitGroup
	for i := range w.clients {
		all.Go(func() {
			heard[i], failed[i] = users[i/each].hear(client, s.url)
		})
	}
	if w.quiet, err = transactions(ctx, rows, o.duration); err != nil {
		return w, err
	}
	for i, u := range users {
		changed[i] = time.Now()
		if err := ask(client, s.url+u.path+"/download", u.token); err != nil {
			return w, err
		}
	}
	all.Wait()
	if err := errors.Join(failed...); err != nil {
		return w, err
	}
	var took []time.Duration
	for i := range heard {
		took = append(took, heard[i].Sub(changed[i/each]))
	}
	slices.Sort(took)
	w.p50, w.p99, w.slowest = benchtest.Quantile(took, 50), benchtest.Quantile(took, 99), took[len(took)-1]
	return w, nil
}

// hear waits until the render's status differs from the one that is known.
func (u waiter) hear(client *http.Client, address string) (time.Time, error) {
	for {
		req, err := http.NewRequest(http.MethodGet, address+u.path+"/status", nil)
		if err != nil {
			return time.Time{}, err
		}
		req.Header.Set("Authorization", "Bearer "+u.token)
		req.Header.Set("Prefer", "wait=30")
		req.Header.Set("If-None-Match", u.etag)
		res, err := client.Do(req)
		if err != nil {
			return time.Time{}, err
		}
		res.Body.Close()
		switch {
		case res.StatusCode == http.StatusOK:
			return time.Now(), nil
		case res.StatusCode != http.StatusNotModified || res.Header.Get("Preference-Applied") == "":
			return time.Time{}, fmt.Errorf("%s answers %s, preference %q", u.path, res.Status, res.Header.Get("Preference-Applied"))
		}
	}
}

// makeWaiters writes n users into the database, each with a copy of the render.
func makeWaiters(ctx context.Context, rows *db.DB, s *service, secret, film string, n int) ([]waiter, error) {
	tokens := account.NewTokens(secret, time.Hour)
	users := make([]waiter, n)
	for i := range users {
		user, job := uuid.NewString(), "rnd-"+uuid.NewString()
		_, err := rows.Exec(ctx, `INSERT INTO users (id, provider, provider_sub, email, name, created_at, last_active_at)
			VALUES ($1, 'provider_a', $1, '', '', now_ms(), now_ms())`, user)
		if err == nil {
			_, err = rows.Exec(ctx, `INSERT INTO jobs (id, kind, user_id, state, source_duration_ms, progress, created_at, started_at, finished_at)
				SELECT $1, kind, $2, state, source_duration_ms, progress, created_at, started_at, finished_at FROM jobs WHERE id = $3`, job, user, film)
		}
		if err == nil {
			_, err = rows.Exec(ctx, `INSERT INTO renders (job_id, spec, output_kind, quality, output_key, output_size_bytes, output_sha256,
					output_duration_ms, expires_at)
				SELECT $1, spec, output_kind, quality, output_key, output_size_bytes, output_sha256, output_duration_ms, expires_at - 60000
				FROM renders WHERE job_id = $2`, job, film)
		}
		if err != nil {
			return nil, fmt.Errorf("make waiting users: %w", err)
		}
		users[i].path = "/api/v2/render/" + job
		if users[i].token, _, err = tokens.Issue(account.Principal{UserID: user, Role: account.RoleUser}); err != nil {
			return nil, err
		}
		req, err := http.NewRequest(http.MethodGet, s.url+users[i].path+"/status", nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+users[i].token)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return nil, err
		}
		res.Body.Close()
		users[i].etag = res.Header.Get("ETag")
	}
	return users, nil
}

// settled is more than PostgreSQL's sessions keep to themselves what they counted,
// 10 s, and longer than all clients need to begin to wait.
const settled = 12 * time.Second

// transactions counts what PostgreSQL is asked for a while, a second. SQLite does
// not tell.
func transactions(ctx context.Context, rows *db.DB, during time.Duration) (float64, error) {
	if !rows.Postgres() {
		return 0, nil
	}
	time.Sleep(settled)
	count := func() (n int64, err error) {
		err = rows.QueryRow(ctx, `SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()`).Scan(&n)
		return n, err
	}
	before, err := count()
	if err != nil {
		return 0, err
	}
	time.Sleep(during)
	after, err := count()
	return float64(after-before) / during.Seconds(), err
}

func (w waiting) perSecond(n float64) string {
	if w.database == "SQLite" {
		return "not counted"
	}
	return fmt.Sprintf("%.1f", n)
}
