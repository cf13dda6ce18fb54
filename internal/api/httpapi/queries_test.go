// What requests cost the database: the number of their queries, the indexes that these use, and how many requests of
// one user may run at once.

package httpapi_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"cutroom/internal/api/httpapi"
	"cutroom/internal/base/db"
	"cutroom/internal/domain/account"
	"cutroom/internal/domain/credit"
	"cutroom/internal/domain/render"
	"cutroom/internal/domain/separation"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/testkit/jobtest"
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
	if stop, ok := ctx.Value(stopKey{}).(*stop); ok {
		defer stop.at()()
	}
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c recordedConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	record(ctx, "BEGIN")
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
}

// stop holds up the queries whose context has it.
type stop struct {
	arrived, release chan struct{}
	now, most        atomic.Int32 // queries at once
}

type stopKey struct{}

// at waits for the release, and returns what to call at the end of the query.
func (s *stop) at() func() {
	n := s.now.Add(1)
	for most := s.most.Load(); n > most && !s.most.CompareAndSwap(most, n); most = s.most.Load() {
	}
	select {
	case s.arrived <- struct{}{}:
		<-s.release
	case <-s.release:
	}
	return func() { s.now.Add(-1) }
}

// slowBody is a body of which nothing has arrived until it is cut off.
type slowBody struct{ asked, cut chan struct{} }

func (b slowBody) Read([]byte) (int, error) {
	select {
	case b.asked <- struct{}{}:
	case <-b.cut:
	}
	<-b.cut
	return 0, io.ErrUnexpectedEOF
}

// At most 16 requests of one user use the database at once. The next 256 wait in line, and delay nobody else.
func TestOneUserLeavesTheDatabaseToOthers(t *testing.T) {
	synctest.Test(t, oneUserLeavesTheDatabase) // no request's time limit ends while the machine is slow
}

func oneUserLeavesTheDatabase(t *testing.T) {
	const atOnce, inLine, otherID = 16, 256, "22222222-2222-4222-8222-222222222222"
	d, api, tokens := pollAPI(t, 40)
	dbtest.Exec(t, d, `INSERT INTO users (id, provider, provider_sub, created_at, last_active_at) VALUES ($1, 'provider_a', 't', 1, 1)`, otherID)
	send := func(ctx context.Context, userID, method, target string, body io.Reader) *httptest.ResponseRecorder {
		token, _, err := tokens.Issue(account.Principal{UserID: userID, Role: account.RoleUser})
		if err != nil {
			t.Error(err)
		}
		r := httptest.NewRequestWithContext(ctx, method, target, body)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		return w
	}
	balance := func(ctx context.Context, userID string) *httptest.ResponseRecorder {
		return send(ctx, userID, http.MethodGet, "/api/v2/credits", nil)
	}
	if w := balance(t.Context(), adminID); w.Code != http.StatusOK { // and the sign-outs are known
		t.Fatalf("%d %s", w.Code, w.Body)
	}

	// A request has no turn while its body arrives.
	body := slowBody{make(chan struct{}), make(chan struct{})}
	refused := make(chan int)
	for range atOnce {
		go func() { refused <- send(t.Context(), adminID, http.MethodPost, "/api/v2/credits/purchase", body).Code }()
		<-body.asked
	}
	if w := balance(t.Context(), adminID); w.Code != http.StatusOK {
		t.Errorf("beside slow uploads: %d %s", w.Code, w.Body)
	}
	close(body.cut)
	for range atOnce {
		if code := <-refused; code != http.StatusBadRequest {
			t.Errorf("a body that broke off: %d", code)
		}
	}

	s := &stop{arrived: make(chan struct{}), release: make(chan struct{})}
	held := context.WithValue(t.Context(), stopKey{}, s)
	answers := make(chan *httptest.ResponseRecorder)
	for range atOnce + inLine + 1 {
		go func() { answers <- balance(held, adminID) }()
	}
	for range atOnce {
		<-s.arrived
	}
	// All others are held up, so the one beyond the line is answered first.
	if w := <-answers; w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), `"unavailable"`) {
		t.Errorf("beyond the line: %d %s", w.Code, w.Body)
	}
	if w := balance(t.Context(), otherID); w.Code != http.StatusOK {
		t.Errorf("another user meanwhile: %d %s", w.Code, w.Body)
	}
	close(s.release)
	for range atOnce + inLine {
		if w := <-answers; w.Code != http.StatusOK {
			t.Errorf("in line: %d %s", w.Code, w.Body)
		}
	}
	if most := s.most.Load(); most != atOnce {
		t.Errorf("%d queries at once, want %d", most, atOnce)
	}
}

// pollAPI is the API with what answers the polls of a phone, for the user adminID.
func pollAPI(t *testing.T, maxPool int) (*db.DB, http.Handler, *account.Tokens) {
	path, quiet := filepath.Join(t.TempDir(), "x.db"), slog.New(slog.DiscardHandler)
	dbtest.SQLiteFile(t, path)
	d := dbtest.Open(t, db.Options{URL: "sqlite://" + path, Driver: driverName, MaxPool: maxPool})
	tokens, ledger := account.NewTokens(strings.Repeat("k", 32), time.Hour), credit.New(credit.Options{DB: d, Log: quiet})
	api := httpapi.New(httpapi.Options{
		DB: d, Credits: ledger, Accounts: account.New(account.Options{DB: d, Tokens: tokens, Log: quiet, Credits: ledger}),
		Renders: render.New(render.Options{DB: d, Log: quiet}), Separations: separation.New(separation.Options{DB: d, Log: quiet, URLLifetime: time.Hour}),
		Observe: func(string, string, int, float64) {}, Log: slog.New(alarm{t: t}.handler()),
	})
	dbtest.Exec(t, d, `INSERT INTO users (id, provider, provider_sub, created_at, last_active_at) VALUES ($1, 'provider_a', 's', 1, 1)`, adminID)
	return d, api, tokens
}

// Each poll of a phone costs one query, or two for a queued separation: a bearer token is checked without the database.
// Each query uses an index.
func TestPollsCostOneIndexedQuery(t *testing.T) {
	d, api, tokens := pollAPI(t, 2)
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
