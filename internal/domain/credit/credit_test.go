// The harness of this package, and the ledger: prices, purchases granted once, lost commits, forged receipts and admin
// grants.

package credit_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/domain/admin"
	"cutroom/internal/domain/credit"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/upstream/receipt"
)

func FuzzPrice(f *testing.F) {
	for _, ms := range []int64{0, 301000, 301001, math.MaxInt64} {
		f.Add(ms)
	}
	f.Fuzz(func(t *testing.T, ms int64) {
		if ms < 0 {
			return
		}
		n := credit.Price(ms)
		if n < 1 || (n > 1 && ms <= (n-1)*300000+1000) {
			t.Fatalf("Price(%d) = %d is too high", ms, n)
		}
		if n < math.MaxInt64/300000-1 && ms > n*300000+1000 {
			t.Fatalf("Price(%d) = %d is too low", ms, n)
		}
	})
}

// store is a receipt verifier that accepts every receipt, or fails with err.
type store struct {
	quantity            int64        // quantity of a purchase; 0 means 1
	calls, asking, most atomic.Int64 // calls of Verify: all, current, most at the same time
	err                 error
	slow                time.Duration
	share               receipt.Share // refunded before the purchase is presented
	test                bool
	verifying           func() // called before the answer

	notice    receipt.Notice
	noticeErr error
	mu        sync.Mutex
	reversed  map[string]bool          // result of Refunds: of all, or of nothing
	refunded  map[string]receipt.Share // result of Refunds
	asked     []string                 // transactions in calls of Refunds
	away      error
}

func (s *store) Notification(context.Context, string, []byte) (receipt.Notice, error) {
	return s.notice, s.noticeErr
}

func (s *store) Refunds(_ context.Context, asked []receipt.Transaction) (map[string]receipt.Share, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := map[string]receipt.Share{}
	for _, t := range asked {
		s.asked = append(s.asked, t.ID)
		if reversed, told := s.reversed[t.ID]; told && s.away == nil {
			known[t.ID] = map[bool]receipt.Share{true: receipt.All}[reversed]
		}
		if share, told := s.refunded[t.ID]; told && s.away == nil {
			known[t.ID] = share
		}
	}
	return known, s.away
}

func (s *store) Verify(context.Context, receipt.Purchase) (receipt.Sale, error) {
	now := s.asking.Add(1)
	defer s.asking.Add(-1)
	for most := s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); most = s.most.Load() {
	}
	s.calls.Add(1)
	if s.slow > 0 {
		time.Sleep(s.slow)
	}
	if s.verifying != nil {
		s.verifying()
	}
	return receipt.Sale{Quantity: max(1, s.quantity), Refunded: s.share, Test: s.test}, s.err
}

// deleteUser deletes an account.
func deleteUser(t *testing.T, d *db.DB, l *credit.Ledger, user string) {
	t.Helper()
	err := d.InTx(t.Context(), func(tx *db.Tx) error {
		if err := l.Forget(t.Context(), tx, user); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), `DELETE FROM users WHERE id = $1`, user)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func addUser(t *testing.T, d *db.DB) string {
	t.Helper()
	id := uuid.NewString()
	dbtest.Exec(t, d, `INSERT INTO users (id, provider, provider_sub, created_at, last_active_at)
		VALUES ($1, 'provider_a', $1, now_ms(), now_ms())`, id)
	return id
}

func newLedger(t *testing.T, d *db.DB, s credit.Store, bonusKey ...string) *credit.Ledger {
	t.Helper()
	return credit.New(credit.Options{DB: d, Catalog: map[string]int64{"credits.10": 10, "credits.50": 50},
		Stores:      map[string]credit.Store{credit.PlatformA: s, credit.PlatformB: s},
		SignupBonus: 3, BonusKey: strings.Join(bonusKey, ""), AdminDailyCap: 100, Log: slog.New(slog.DiscardHandler)})
}

// sales returns a user's purchases as support sees them.
func sales(t *testing.T, d *db.DB, user string) []admin.Purchase {
	t.Helper()
	sales, _, err := admin.New(d).Purchases(t.Context(), user, admin.Page{Limit: 1000})
	if err != nil {
		t.Error(err)
	}
	return sales
}

// checkLedger fails the test unless every balance is the sum of its ledger entries.
func checkLedger(t *testing.T, d *db.DB) {
	t.Helper()
	if wrong := dbtest.Number(t, d, `SELECT COUNT(*) FROM users u WHERE
		COALESCE((SELECT balance FROM credit_balances b WHERE b.user_id = u.id), 0)
		<> COALESCE((SELECT SUM(amount) FROM credit_ledger l WHERE l.user_id = u.id), 0)`); wrong != 0 {
		t.Errorf("%d balances differ from their ledger", wrong)
	}
}

func charge(ctx context.Context, d *db.DB, user, job string, n int64) error {
	return d.InTx(ctx, func(tx *db.Tx) error { return credit.Charge(ctx, tx, user, job, n) })
}

func refund(t *testing.T, d *db.DB, user, job string) bool {
	t.Helper()
	var did bool
	err := d.InTx(t.Context(), func(tx *db.Tx) (err error) {
		did, err = credit.Refund(t.Context(), tx, user, job)
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return did
}

func support(t *testing.T, d *db.DB, user, id string, amount int64) (fresh bool, err error) {
	t.Helper()
	err = d.InTx(t.Context(), func(tx *db.Tx) (err error) {
		fresh, err = credit.Support(t.Context(), tx, user, id, amount)
		return err
	})
	return fresh, err
}

func TestLedgerHoldsUnderConcurrency(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l := newLedger(t, d, &store{})
		user := addUser(t, d)
		if err := l.GrantSignup(t.Context(), user); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var paid, refused atomic.Int64
		for i := range 24 { // charge 24 jobs with three credits
			wg.Go(func() {
				err := charge(t.Context(), d, user, fmt.Sprint("sep-", i), 1)
				switch f := fault.As(err); {
				case err == nil:
					paid.Add(1)
				case f != nil && f.Code == "insufficient_credits":
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if paid.Load() != 3 || refused.Load() != 21 {
			t.Errorf("paid %d, refused %d; want 3 and 21", paid.Load(), refused.Load())
		}
		var refunds atomic.Int64
		for i := range 24 { // refund every job four times
			for range 4 {
				wg.Go(func() {
					if refund(t, d, user, fmt.Sprint("sep-", i)) {
						refunds.Add(1)
					}
				})
			}
		}
		wg.Wait()
		if refunds.Load() != 3 {
			t.Errorf("%d refunds took effect, want 3", refunds.Load())
		}
		if n, err := l.Balance(t.Context(), user); err != nil || n != 3 {
			t.Errorf("balance %d, %v; want 3", n, err)
		}
		checkLedger(t, d)
	})
}

func TestPurchaseIsGrantedOnce(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := &store{}
		l := newLedger(t, d, s)
		users := []string{addUser(t, d), addUser(t, d)}
		req := credit.PurchaseRequest{Platform: " Platform_A ", TransactionID: "t-1", Receipt: "r", ProductID: "credits.10"}
		var granted atomic.Int64
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				g, err := l.Purchase(t.Context(), users[i%2], req)
				if err != nil {
					t.Error(err)
				}
				granted.Add(g.Granted)
			})
		}
		wg.Wait()
		if granted.Load() != 10 {
			t.Errorf("granted %d credits, want 10", granted.Load())
		}
		checkLedger(t, d)
		// The receipt stays spent after its buyer's account is deleted, but does not identify the buyer.
		for _, u := range users {
			deleteUser(t, d, l, u)
		}
		if named := dbtest.Number(t, d, `SELECT COUNT(order_id) FROM purchases`); named != 0 {
			t.Errorf("%d order numbers outlive the account", named)
		}
		g, err := l.Purchase(t.Context(), addUser(t, d), req)
		if err != nil || g.Granted != 0 || g.Balance != 0 {
			t.Errorf("replay after deletion: %+v, %v", g, err)
		}
		// The same id at the other store is another transaction. The grant is multiplied by the quantity.
		s.quantity, req.Platform = 3, credit.PlatformB
		if g, err := l.Purchase(t.Context(), addUser(t, d), req); err != nil || g.Granted != 30 || g.Balance != 30 {
			t.Errorf("three at the other store: %+v, %v", g, err)
		}
	})
}

// If the answer to a commit is lost, the client presents the receipt again, and gets the first grant.
func TestALostCommitGrantsOnce(t *testing.T) {
	direct, lossy := dbtest.Lossy(t, func(d *db.DB) bool {
		var n int
		err := d.QueryRow(context.WithoutCancel(t.Context()), `SELECT COUNT(*) FROM purchases`).Scan(&n)
		return err == nil && n > 0
	})
	user := addUser(t, direct)
	req := credit.PurchaseRequest{Platform: "platform_a", TransactionID: "t-1", Receipt: "r", ProductID: "credits.10"}
	if g, err := newLedger(t, lossy, &store{}).Purchase(t.Context(), user, req); err == nil {
		t.Fatalf("the answer was not lost: %+v", g)
	}
	if g, err := newLedger(t, direct, &store{}).Purchase(t.Context(), user, req); err != nil || g.Granted != 0 || g.Balance != 10 {
		t.Errorf("presented again: %+v, %v", g, err)
	}
	checkLedger(t, direct)
}

// If a user presents many forged receipts concurrently, only a few reach the store.
func TestForgedReceiptsDoNotReachTheStore(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := &store{err: receipt.ErrInvalid, slow: 5 * time.Millisecond}
		l, user := newLedger(t, d, s), addUser(t, d)
		var refused, limited atomic.Int64
		var wg sync.WaitGroup
		for i := range 60 {
			wg.Go(func() {
				_, err := l.Purchase(t.Context(), user, credit.PurchaseRequest{Platform: "platform_a", TransactionID: fmt.Sprint("forged-", i), Receipt: "r", ProductID: "credits.10"})
				switch f := fault.As(err); {
				case f != nil && f.Code == "receipt_invalid" && f.Detail == "unverified":
					refused.Add(1)
				case f != nil && f.Code == "rate_limited" && f.RetryAfter >= time.Second && f.RetryAfter <= time.Minute:
					limited.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		// Verifications that were running when the twentieth receipt was refused are refused too.
		if n := refused.Load(); n < 20 || n > 27 || n+limited.Load() != 60 || s.calls.Load() != n {
			t.Errorf("%d refused, %d limited, %d calls of the store", n, limited.Load(), s.calls.Load())
		}
		if s.most.Load() > 8 {
			t.Errorf("%d concurrent calls of the store", s.most.Load())
		}
	})
}

// A revoked admin cannot grant credits, and grants older than a day do not count towards the cap.
func TestAdminGrantsByRoleAndDay(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l, admin := newLedger(t, d, &store{}), addUser(t, d)
		for _, step := range []struct{ before, code string }{
			{``, "admin_required"},
			{`UPDATE users SET role = 'admin'`, ""},
			{``, ""},
			{``, "admin_grant_daily_cap_exceeded"},
			{`UPDATE credit_ledger SET created_at = created_at - 86400001`, ""},
			{`UPDATE users SET role = 'user'`, "admin_required"},
		} {
			if step.before != "" {
				dbtest.Exec(t, d, step.before)
			}
			g, err := l.AdminGrant(t.Context(), admin, "credits.50")
			if f := fault.As(err); step.code == "" && (err != nil || g.Granted != 50) || step.code != "" && (f == nil || f.Code != step.code) {
				t.Errorf("after %q: %+v, %v, want %q", step.before, g, err, step.code)
			}
		}
		// Concurrent grants do not exceed the cap of 100 for each admin.
		for range 2 {
			another := addUser(t, d)
			dbtest.Exec(t, d, `UPDATE users SET role = 'admin' WHERE id = $1`, another)
			var granted atomic.Int64
			var wg sync.WaitGroup
			for range 16 {
				wg.Go(func() {
					g, err := l.AdminGrant(t.Context(), another, "credits.10")
					if f := fault.As(err); err != nil && (f == nil || f.Detail != "granted=100 cap=100") {
						t.Error(err)
					}
					granted.Add(g.Granted)
				})
			}
			wg.Wait()
			if granted.Load() != 100 {
				t.Errorf("concurrent grants of %d credits, want 100", granted.Load())
			}
		}
		checkLedger(t, d)
	})
}
