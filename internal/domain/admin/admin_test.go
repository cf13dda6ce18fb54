package admin_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"cutroom/internal/base/db"
	"cutroom/internal/domain/admin"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/testkit/jobtest"
	"cutroom/internal/upstream/separator"
)

// onBoth runs a test on both databases.
func onBoth(t *testing.T, test func(t *testing.T, s *seed)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) { test(t, newSeed(t, d)) })
}

// seed writes rows as the service would, with times that the test chooses.
type seed struct {
	t       *testing.T
	db      *db.DB
	reports *admin.Reports
	now     time.Time // the database's clock
	rows    int
}

func newSeed(t *testing.T, d *db.DB) *seed {
	s := &seed{t: t, db: d, reports: admin.New(d)}
	var ms int64
	if err := d.QueryRow(t.Context(), `SELECT now_ms()`).Scan(&ms); err != nil {
		t.Fatal(err)
	}
	s.now = time.UnixMilli(ms)
	return s
}

func (s *seed) exec(query string, args ...any) {
	s.t.Helper()
	dbtest.Exec(s.t, s.db, query, args...)
}

func (s *seed) next() int { s.rows++; return s.rows }

// user adds a user of provider_a who registered and was active now.
func (s *seed) user(name, email string) string {
	s.t.Helper()
	id := uuid.NewString()
	s.exec(`INSERT INTO users (id, provider, provider_sub, email, name, created_at, last_active_at)
		VALUES ($1, 'provider_a', $1, $2, $3, $4, $4)`, id, email, name, s.now.UnixMilli())
	return id
}

func (s *seed) erasing(user string) {
	s.t.Helper()
	s.exec(`UPDATE users SET erasing_at = now_ms() WHERE id = $1`, user)
}

func (s *seed) active(user string, at time.Time) {
	s.t.Helper()
	s.exec(`UPDATE users SET last_active_at = $2 WHERE id = $1`, user, at.UnixMilli())
}

func (s *seed) render(user, state string, at time.Time, source time.Duration) string {
	s.t.Helper()
	return s.job("rnd-", user, state, at, source)
}

func (s *seed) separation(user, state string, at time.Time, source time.Duration) string {
	s.t.Helper()
	return s.job("sep-", user, state, at, source)
}

func (s *seed) job(prefix, user, state string, at time.Time, source time.Duration) string {
	s.t.Helper()
	id := fmt.Sprintf("%s%04d", prefix, s.next())
	jobtest.Insert(s.t, s.db, id, user, state, at.UnixMilli(), source.Milliseconds())
	return id
}

// purchase adds a purchase; buyer "" is a deleted account.
func (s *seed) purchase(buyer, platform string, credits int64, at time.Time) {
	s.t.Helper()
	var id any
	if buyer != "" {
		id = buyer
	}
	s.exec(`INSERT INTO purchases (platform, transaction_hash, product_id, credits, buyer_id, created_at)
		VALUES ($1, $2, 'p', $3, $4, $5)`, platform, fmt.Sprint(s.next()), credits, id, at.UnixMilli())
}

func (s *seed) ledger(user, kind string, amount int64) {
	s.t.Helper()
	s.exec(`INSERT INTO credit_ledger (ref_id, user_id, kind, amount, created_at) VALUES ($1, $2, $3, $4, $5)`,
		fmt.Sprint(kind, s.next()), user, kind, amount, s.now.UnixMilli())
}

func (s *seed) call(endpoint string, success bool, latencyMs int64, at time.Time) {
	s.t.Helper()
	call := separator.Call{Endpoint: endpoint, Success: success, Latency: time.Duration(latencyMs) * ms}
	if err := admin.WriteCall(s.t.Context(), s.db, call, at); err != nil {
		s.t.Fatal(err)
	}
}

// must fails the test on an error and returns the value.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// equal fails the test unless got is want, both printed with their field names.
func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		t.Errorf("%s:\n got %s\nwant %s", what, g, w)
	}
}

func day(t *testing.T, s string) admin.Day {
	t.Helper()
	at, err := time.Parse(time.DateOnly, s)
	if err != nil {
		t.Fatal(err)
	}
	return admin.DayOf(at)
}
