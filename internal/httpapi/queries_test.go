package httpapi_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cutroom/internal/account"
	"cutroom/internal/credit"
	"cutroom/internal/db"
	"cutroom/internal/dbtest"
	"cutroom/internal/httpapi"
	"cutroom/internal/jobtest"
	"cutroom/internal/render"
	"cutroom/internal/separation"
)

// driverName is SQLite that records the statements of a request.
const driverName = "sqlite-recorded"

func init() {
	pool, err := sql.Open("sqlite", "") // the driver that knows now_ms()
	if err != nil {
		panic(err)
	}
	sql.Register(driverName, recordedDriver{pool.Driver()})
}

type recordedDriver struct{ driver.Driver }

func (d recordedDriver) Open(name string) (driver.Conn, error) {
	c, err := d.Driver.Open(name)
	return recordedConn{c}, err
}

// recordedConn adds each statement to the statements in its context.
type recordedConn struct{ driver.Conn }

type statementsKey struct{}

type statement struct {
	sql  string
	args []any
}

func record(ctx context.Context, sql string, args ...driver.NamedValue) {
	if all, ok := ctx.Value(statementsKey{}).(*[]statement); ok {
		s := statement{sql: sql}
		for _, arg := range args {
			s.args = append(s.args, arg.Value)
		}
		*all = append(*all, s)
	}
}

func (c recordedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	record(ctx, query, args...)
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c recordedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	record(ctx, query, args...)
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c recordedConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	record(ctx, "BEGIN")
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
}

// Each poll of a phone costs one query, or two for a queued separation: a bearer token is checked without the database.
// Each query uses an index.
func TestPollsCostOneIndexedQuery(t *testing.T) {
	path, quiet := filepath.Join(t.TempDir(), "x.db"), slog.New(slog.DiscardHandler)
	dbtest.SQLiteFile(t, path)
	d := dbtest.Open(t, db.Options{URL: "sqlite://" + path, Driver: driverName, MaxPool: 2})
	tokens, ledger := account.NewTokens(strings.Repeat("k", 32), time.Hour), credit.New(credit.Options{DB: d, Log: quiet})
	api := httpapi.New(httpapi.Options{
		DB: d, Credits: ledger, Accounts: account.New(account.Options{DB: d, Tokens: tokens, Log: quiet, Credits: ledger}),
		Renders: render.New(render.Options{DB: d, Log: quiet}), Separations: separation.New(separation.Options{DB: d, Log: quiet, URLLifetime: time.Hour}),
		Observe: func(string, string, int, float64) {}, Log: slog.New(alarm{t: t}.handler()),
	})
	dbtest.Exec(t, d, `INSERT INTO users (id, provider, provider_sub, created_at, last_active_at) VALUES ($1, 'provider_a', 's', 1, 1)`, adminID)
	for id, state := range map[string]string{"rnd-1": "PROCESSING", "sep-1": "READY", "sep-2": "QUEUED"} {
		jobtest.Insert(t, d, id, adminID, state, 1, 1)
	}
	token, _, err := tokens.Issue(account.Principal{UserID: adminID, Role: account.RoleUser})
	if err != nil {
		t.Fatal(err)
	}
	databases := []*db.DB{d, dbtest.Postgres(t)}
	for poll, queries := range map[string]int{"/api/v2/credits": 1, "/api/v2/credits/cost?durationMs=1": 1, "/api/v2/render/rnd-1/status": 1,
		"/api/v2/separate/sep-1": 1, "/api/v2/separate/sep-2": 2} {
		var sent []statement
		r := httptest.NewRequestWithContext(context.WithValue(t.Context(), statementsKey{}, &sent), http.MethodGet, poll, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		// The sign-outs are read once in a while, for all requests.
		sent = slices.DeleteFunc(sent, func(s statement) bool { return strings.Contains(s.sql, "signed_out_at") })
		if w.Code != http.StatusOK || len(sent) != queries {
			t.Errorf("%s: %d %s after %d queries, want %d: %q", poll, w.Code, w.Body, len(sent), queries, sent)
		}
		for _, s := range sent {
			for _, d := range databases {
				if plan := dbtest.Plan(t, d, noSeqScan, s.sql, s.args...); len(plan) == 0 || slices.ContainsFunc(plan, scansTable) {
					t.Errorf("%s reads a whole table:\n%s", poll, strings.Join(plan, "\n"))
				}
			}
		}
	}
	// A waiting poll costs no more while nothing changes.
	var sent []statement
	r := httptest.NewRequestWithContext(context.WithValue(t.Context(), statementsKey{}, &sent), http.MethodGet, "/api/v2/render/rnd-1/status", nil)
	r.Header = http.Header{"Authorization": {"Bearer " + token}, "Prefer": {"wait=1"}, "If-None-Match": {"*"}}
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	if w.Code != http.StatusNotModified || w.Header().Get("Preference-Applied") == "" || len(sent) != 1 {
		t.Errorf("a waiting poll: %d after %d queries: %q", w.Code, len(sent), sent)
	}
	for _, d := range databases { // Prove that the check itself can fail.
		if plan := dbtest.Plan(t, d, noSeqScan, `SELECT id FROM users WHERE name = $1`, "x"); !slices.ContainsFunc(plan, scansTable) {
			t.Errorf("a search without an index passes: %q", plan)
		}
	}
}

// noSeqScan keeps PostgreSQL from reading small tables whole.
const noSeqScan = `SET LOCAL enable_seqscan = off`

// scansTable detects a plan step that uses no index, in the words of either database.
func scansTable(step string) bool {
	step = strings.TrimSpace(step)
	return strings.Contains(step, "Seq Scan") || strings.HasPrefix(step, "SCAN ") && !strings.Contains(step, "USING") && step != "SCAN h"
}
