// Refunds by the stores: debts, shares, notifications that come early or are not confirmed, and the invariants of the
// ledger in any order of changes.

package credit_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/domain/admin"
	"cutroom/internal/domain/credit"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/upstream/receipt"
)

// buy grants ten credits for a transaction.
func buy(t *testing.T, l *credit.Ledger, user, transaction string) {
	t.Helper()
	if _, err := l.Purchase(t.Context(), user, credit.PurchaseRequest{
		Platform: "platform_a", TransactionID: transaction, Receipt: "r", ProductID: "credits.10"}); err != nil {
		t.Fatal(err)
	}
}

// notified passes a store's notification to the ledger and returns the result.
func notified(t *testing.T, l *credit.Ledger, s *store, transaction string) error {
	t.Helper()
	s.notice = receipt.Notice{Transaction: receipt.Transaction{ID: transaction, Token: "t"}}
	return l.Notify(t.Context(), "platform_a", "", nil)
}

func TestARefundRevokesTheBalanceAndRecordsTheRestAsDebt(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := &store{reversed: map[string]bool{}}
		l, user := newLedger(t, d, s), addUser(t, d)
		expect := func(what string, balance, debts int64) {
			t.Helper()
			have, err := l.Balance(t.Context(), user)
			var owed int64
			for _, sale := range sales(t, d, user) {
				owed += sale.Owed
			}
			if err != nil || have != balance || owed != debts {
				t.Errorf("%s: balance %d, owed %d (%v); want %d and %d", what, have, owed, err, balance, debts)
			}
			checkLedger(t, d)
		}
		buy(t, l, user, "t-1")
		if err := charge(t.Context(), d, user, "job", 7); err != nil {
			t.Fatal(err)
		}
		if charge(t.Context(), d, user, "job", 1) == nil {
			t.Error("a job was charged twice")
		}
		// A notification has no effect unless the store confirms it.
		for _, said := range []map[string]bool{{}, {"t-1": false}} {
			s.reversed = said
			if err := notified(t, l, s, "t-1"); err != nil {
				t.Error(err)
			}
			expect("not confirmed", 3, 0)
		}
		s.reversed = map[string]bool{"t-1": true}
		for _, unknown := range []string{"t-2", ""} {
			if err := notified(t, l, s, unknown); err != nil {
				t.Error(err)
			}
		}
		s.notice = receipt.Notice{Transaction: receipt.Transaction{ID: "t-1"}, Partial: true}
		if err := l.Notify(t.Context(), "platform_a", "", nil); err != nil {
			t.Error(err)
		}
		expect("another transaction, or a partial refund", 3, 0)
		for range 2 {
			if err := notified(t, l, s, "t-1"); err != nil {
				t.Error(err)
			}
			expect("refunded", 0, 7)
		}
		// Credits that support revokes count against the debt.
		if _, err := support(t, d, user, "gift", 5); err != nil {
			t.Fatal(err)
		}
		if _, err := support(t, d, user, "settle", -5); err != nil {
			t.Fatal(err)
		}
		expect("settled in part", 0, 2)
		// The store may refund a purchase after its buyer's account is deleted.
		gone := addUser(t, d)
		buy(t, l, gone, "t-9")
		deleteUser(t, d, l, gone)
		s.reversed["t-9"] = true
		if err := notified(t, l, s, "t-9"); err != nil || dbtest.Number(t, d, `SELECT COUNT(*) FROM purchases WHERE reversed_at > 0 AND owed = 0`) != 1 {
			t.Errorf("the refund of a deleted account: %v", err)
		}
		expect("another account's refund", 0, 2)
	})
}

// A store's refund waits for a job's refund in progress: together they leave no debt that the balance would cover.
func TestARefundWaitsForTheRefundOfAJob(t *testing.T) {
	d := dbtest.Postgres(t) // SQLite has one writer
	s := &store{reversed: map[string]bool{"t-1": true}}
	l, user := newLedger(t, d, s), addUser(t, d)
	buy(t, l, user, "t-1")
	if err := charge(t.Context(), d, user, "job", 7); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	err := d.InTx(t.Context(), func(tx *db.Tx) error {
		_, err := credit.Refund(t.Context(), tx, user, "job")
		go func() { done <- notified(t, l, s, "t-1") }()
		for len(done) == 0 && dbtest.Number(t, d, `SELECT COUNT(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'`) == 0 {
			time.Sleep(time.Millisecond)
		}
		return err
	})
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	if a := readAccount(t, d, user); a != (account{refunded: 7}) {
		t.Errorf("%+v, want neither balance nor debt", a)
	}
	checkLedger(t, d)
}

// A user cannot evade a store's refund by spending credits on jobs and deleting the jobs: the refund of a job
// settles the oldest debt first. A purchase settles no debt.
func TestJobRefundsSettleWhatIsOwed(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := &store{reversed: map[string]bool{"t-1": true, "t-2": true}}
		l, user := newLedger(t, d, s), addUser(t, d)
		buy(t, l, user, "t-1")
		buy(t, l, user, "t-2")
		for job, n := range map[string]int64{"six": 6, "four": 4, "ten": 10} {
			if err := charge(t.Context(), d, user, job, n); err != nil {
				t.Fatal(err)
			}
		}
		dbtest.Exec(t, d, `UPDATE purchases SET created_at = created_at - 1000 WHERE order_id = 't-1'`)
		for _, order := range []string{"t-1", "t-2"} {
			if err := notified(t, l, s, order); err != nil {
				t.Fatal(err)
			}
		}
		buy(t, l, user, "t-3")
		for _, step := range []struct {
			refund        string
			balance       int64
			first, second int64 // debts
			ref           string
		}{
			{"", 10, 10, 10, "platform_a-t-3"},
			{"six", 10, 4, 10, "reversal-platform_a-t-1-1"},
			{"six", 10, 4, 10, "refund-six"},
			{"ten", 10, 0, 4, "reversal-platform_a-t-1-2"},
			{"", 10, 0, 4, "reversal-platform_a-t-2-1"},
			{"four", 10, 0, 0, "reversal-platform_a-t-2-2"},
		} {
			if step.refund != "" {
				refund(t, d, user, step.refund)
			}
			owed := map[admin.Text]int64{}
			for _, sale := range sales(t, d, user) {
				owed[sale.OrderID] = sale.Owed
			}
			have, err := l.Balance(t.Context(), user)
			if err != nil || have != step.balance || owed["t-1"] != step.first || owed["t-2"] != step.second {
				t.Errorf("%+v: balance %d, owed %v (%v)", step, have, owed, err)
			}
			if n := dbtest.Number(t, d, `SELECT COUNT(*) FROM credit_ledger WHERE ref_id = $1`, step.ref); n != 1 {
				t.Errorf("%d entries %s", n, step.ref)
			}
		}
		checkLedger(t, d)
		entries, _, err := admin.New(d).Ledger(t.Context(), user, admin.Page{Limit: 100})
		for _, e := range entries {
			// The order number is a prefix of the reference; later settlements append to it.
			if e.Kind == "reversal" && string(e.OrderID) != e.RefID[len("reversal-platform_a-"):][:len("t-1")] {
				t.Errorf("%s is shown with order %q", e.RefID, e.OrderID)
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// A store may refund a share of a purchase, then more of it, and take that back. Each step takes or gives only what is
// missing, once.
func TestRefundsOfAShare(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := &store{quantity: 3, refunded: map[string]receipt.Share{}}
		l, user := newLedger(t, d, s), addUser(t, d)
		buyB := func(order string) (credit.Grant, error) {
			return l.Purchase(t.Context(), user, credit.PurchaseRequest{Platform: "platform_b", TransactionID: order, Receipt: "r", ProductID: "credits.50"})
		}
		say := func(order string, share receipt.Share) {
			t.Helper()
			s.refunded[order] = share
			s.notice = receipt.Notice{Transaction: receipt.Transaction{ID: order}}
			if err := l.Notify(t.Context(), "platform_b", "", nil); err != nil {
				t.Error(err)
			}
		}
		of := func(part int64) receipt.Share { return receipt.Share{Part: part, Of: 100_000} }
		expect := func(what string, balance, owed, refunded int64, wholly bool) {
			t.Helper()
			have, err := l.Balance(t.Context(), user)
			sale := sales(t, d, user)[0]
			if err != nil || have != balance || sale.Owed != owed || sale.Refunded != refunded || sale.ReversedAt.IsZero() == wholly {
				t.Errorf("%s: balance %d, %+v (%v); want %d, %d owed, %d refunded, wholly %t", what, have, sale, err, balance, owed, refunded, wholly)
			}
			checkLedger(t, d)
		}
		if got, err := buyB("100"); err != nil || got.Granted != 150 {
			t.Fatalf("%+v, %v", got, err)
		}
		for range 2 {
			say("100", of(33_333))
			expect("a third", 100, 0, 50, false)
		}
		say("100", of(66_667))
		expect("two thirds", 50, 0, 100, false)
		say("100", of(50_000))
		expect("a smaller share is no news", 50, 0, 100, false)
		for range 2 {
			say("100", receipt.Share{})
			expect("reversed", 150, 0, 0, false)
		}
		if err := charge(t.Context(), d, user, "job", 120); err != nil {
			t.Fatal(err)
		}
		say("100", of(50_000))
		expect("refunded again, beyond the balance", 0, 45, 75, false)
		refund(t, d, user, "job") // settles 45 of 120
		expect("settled by a job", 75, 0, 75, false)
		say("100", receipt.All)
		expect("all", 0, 0, 150, true)
		say("100", receipt.Share{})
		expect("reversed again", 150, 0, 0, false)
		if err := charge(t.Context(), d, user, "other", 100); err != nil {
			t.Fatal(err)
		}
		say("100", receipt.All)
		expect("all, beyond the balance", 0, 100, 150, true)
		// The nightly check finds the reversal, too.
		s.refunded["100"], s.asked = receipt.Share{}, nil
		dbtest.Exec(t, d, `UPDATE purchases SET created_at = created_at - $1, asked_at = asked_at - $1`, 24*3600_000)
		if err := l.CheckPastSales(t.Context()); err != nil || len(s.asked) != 1 {
			t.Errorf("%v, asked about %v", err, s.asked)
		}
		expect("reversed by night", 50, 0, 0, false)
		if n := dbtest.Number(t, d, `SELECT COUNT(*) FROM credit_ledger WHERE ref_id = 'reversal-platform_b-100' OR ref_id LIKE 'reversal-platform_b-100-%'`); n != 9 {
			t.Errorf("%d reversals in the ledger, want one for each step and one for the settlement", n)
		}

		// Refunded in part before the app presented it.
		s.share, s.refunded["200"] = of(33_333), of(33_333)
		if got, err := buyB("200"); err != nil || got.Granted != 100 || got.Balance != 150 {
			t.Errorf("the rest: %+v, %v", got, err)
		}
		balance := func(what string, want int64) {
			t.Helper()
			if have, err := l.Balance(t.Context(), user); err != nil || have != want {
				t.Errorf("%s: balance %d (%v), want %d", what, have, err, want)
			}
			checkLedger(t, d)
		}
		say("200", of(33_333))
		balance("that share was never granted", 150)
		say("200", of(66_667))
		balance("more of it", 100)
		say("200", receipt.Share{})
		balance("reversed: the buyer has paid all of it", 200)
		s.share = of(99_900) // of 150 credits 149.85, rounded to all
		if _, err := buyB("300"); fault.As(err) == nil || fault.As(err).Detail != "revoked" {
			t.Errorf("nothing is left: %v", err)
		}
	})
}

// Two orders of which one's number continues the other's have their own references.
func TestReversalsOfSimilarOrders(t *testing.T) {
	d := dbtest.SQLite(t)
	s := &store{refunded: map[string]receipt.Share{}}
	l, user := newLedger(t, d, s), addUser(t, d)
	for _, order := range []string{"t", "t-1"} {
		buy(t, l, user, order)
	}
	for _, share := range []receipt.Share{receipt.All, {}, receipt.All} {
		for _, order := range []string{"t-1", "t"} {
			s.refunded[order] = share
			if err := notified(t, l, s, order); err != nil {
				t.Error(err)
			}
		}
	}
	if have, err := l.Balance(t.Context(), user); err != nil || have != 0 {
		t.Errorf("balance %d, %v", have, err)
	}
	checkLedger(t, d)
}

// A refund that is notified while its purchase is being verified takes the credits back once they are granted.
func TestARefundDuringVerification(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := &store{reversed: map[string]bool{"t-1": true}}
		l, user := newLedger(t, d, s), addUser(t, d)
		s.verifying = func() {
			if err := notified(t, l, s, "t-1"); err != nil {
				t.Error(err)
			}
			if err := l.CheckPastSales(t.Context()); err != nil { // a sweep before the credits are granted
				t.Error(err)
			}
		}
		buy(t, l, user, "t-1")
		minutes := func(n int) {
			t.Helper()
			dbtest.Exec(t, d, `UPDATE sale_notices SET due_at = due_at - $1, created_at = created_at - $1`, n*60_000)
			if err := l.CheckPastSales(t.Context()); err != nil {
				t.Error(err)
			}
		}
		minutes(1)
		if have, err := l.Balance(t.Context(), user); err != nil || have != 0 {
			t.Errorf("balance %d a minute later, want 0 (%v)", have, err)
		}
		if n := dbtest.Number(t, d, `SELECT COUNT(*) FROM sale_notices`); n != 0 {
			t.Errorf("%d notifications are kept", n)
		}
		// A notice about a purchase that was never paid out is dropped.
		if err := notified(t, l, s, "t-2"); err != nil {
			t.Error(err)
		}
		if minutes(9); dbtest.Number(t, d, `SELECT COUNT(*) FROM sale_notices`) != 1 {
			t.Error("forgotten too early")
		}
		if minutes(2); dbtest.Number(t, d, `SELECT COUNT(*) FROM sale_notices`) != 0 {
			t.Error("kept too long")
		}
		checkLedger(t, d)
	})
}

// A store that refuses the service confirms nothing. It is asked again, in growing intervals, for three days.
func TestUnconfirmedNotificationsAreAskedAgain(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := &store{reversed: map[string]bool{"t-1": true}}
		l, user := newLedger(t, d, s), addUser(t, d)
		buy(t, l, user, "t-1")
		for _, why := range []error{receipt.ErrUnavailable, fmt.Errorf("%w: %w", receipt.ErrInvalid, receipt.ErrCredentials)} {
			s.away, s.asked = why, nil
			if err := notified(t, l, s, "t-1"); err != nil {
				t.Error(err)
			}
			for range 48 * 60 {
				dbtest.Exec(t, d, `UPDATE sale_notices SET due_at = due_at - 60000, created_at = created_at - 60000`)
				if len(s.asked) > 8 { // one more at last
					break
				}
				if err := l.CheckPastSales(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if n := len(s.asked); n != 9 {
				t.Errorf("asked %d times", n)
			}
		}
		s.away = nil
		dbtest.Exec(t, d, `UPDATE sale_notices SET due_at = 0`)
		if err := l.CheckPastSales(t.Context()); err != nil {
			t.Error(err)
		}
		if have, err := l.Balance(t.Context(), user); err != nil || have != 0 {
			t.Errorf("balance %d, want 0 (%v)", have, err)
		}
	})
}

// The free tests of one account are limited, also if they come at once.
func TestTestsAreLimited(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := &store{quantity: 3, test: true}
		l, user := newLedger(t, d, s), addUser(t, d)
		test := func(platform string, n int) error {
			_, err := l.Purchase(t.Context(), user, credit.PurchaseRequest{Platform: platform, TransactionID: fmt.Sprint(platform, n), Receipt: "r", ProductID: "credits.50"})
			return err
		}
		expect := func(what string, balance int64) {
			t.Helper()
			if have, err := l.Balance(t.Context(), user); err != nil || have != balance {
				t.Errorf("%s: balance %d (%v), want %d", what, have, err, balance)
			}
		}
		var wg sync.WaitGroup
		for n := range 10 { // 150 credits each
			wg.Go(func() {
				if f := fault.As(test("platform_b", n)); f != nil && (f.Code != "receipt_invalid" || f.Detail != "test_purchase") {
					t.Error(f)
				}
			})
		}
		wg.Wait()
		expect("ten at once", 900)
		s.quantity = 2
		if err := test("platform_b", 20); err != nil {
			t.Error(err)
		}
		expect("exactly 1,000", 1000)
		s.quantity = 1
		if test("platform_b", 21) == nil {
			t.Error("beyond 1,000")
		}
		if err := test("platform_a", 22); err != nil {
			t.Error(err)
		}
		s.test = false
		if err := test("platform_b", 23); err != nil {
			t.Error(err)
		}
		expect("with another platform's test, and a purchase", 1100)
		r, err := admin.New(d).Revenue(t.Context())
		if err != nil || r.PurchaseCount != 1 || r.CreditsSold != 50 || r.CreditsSold30d != 50 || r.PayingUsers != 1 {
			t.Errorf("revenue %+v, %v", r, err)
		}
		s.test = true
		dbtest.Exec(t, d, `UPDATE purchases SET created_at = created_at - 86400001`)
		if err := test("platform_b", 24); err != nil {
			t.Errorf("a day later: %v", err)
		}
		checkLedger(t, d)
	})
}

// Together, all replicas query each purchase once a night. They catch up after an outage of the store.
func TestPastSalesAreQueriedNightly(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := &store{reversed: map[string]bool{}}
		replicas := []*credit.Ledger{newLedger(t, d, s), newLedger(t, d, s)}
		l, user := replicas[0], addUser(t, d)
		const sold = 30
		for i := range sold {
			buy(t, l, user, fmt.Sprint("t-", i))
			s.reversed[fmt.Sprint("t-", i)] = i == 3
		}
		night := func() []string {
			t.Helper()
			s.asked = nil
			var wg sync.WaitGroup
			for _, l := range replicas {
				wg.Go(func() {
					if err := l.CheckPastSales(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			return s.asked
		}
		pass := func(hours int) {
			t.Helper()
			dbtest.Exec(t, d, `UPDATE purchases SET created_at = created_at - $1, asked_at = asked_at - $1`, hours*3600_000)
		}
		if asked := night(); len(asked) != 0 {
			t.Errorf("one query for %d sales", len(asked))
		}
		pass(24)
		s.away = receipt.ErrUnavailable
		night()
		s.away = nil
		if asked := night(); len(asked) != sold {
			t.Errorf("%d queries for %d sales", len(asked), sold)
		}
		if have, err := l.Balance(t.Context(), user); err != nil || have != (sold-1)*10 {
			t.Errorf("balance %d, %v", have, err)
		}
		if asked := night(); len(asked) != 0 {
			t.Errorf("%d repeated queries in the same night", len(asked))
		}
		pass(24)
		if asked := night(); len(asked) != sold-1 {
			t.Errorf("%d queries in the next night, want one for each sale not refunded", len(asked))
		}
		// The next sweep queries the transaction of a notification that could not be confirmed.
		s.away, s.reversed["t-5"] = receipt.ErrUnavailable, true
		if err := notified(t, l, s, "t-5"); err != nil {
			t.Error(err)
		}
		s.away = nil
		if asked := night(); len(asked) != 1 || asked[0] != "t-5" {
			t.Errorf("queries for %v", asked)
		}
		if have, err := l.Balance(t.Context(), user); err != nil || have != (sold-2)*10 {
			t.Errorf("balance %d, %v", have, err)
		}
		// If the sender of a notification cannot be verified, the store must send it again.
		s.noticeErr = receipt.ErrUnavailable
		if f := fault.As(notified(t, l, s, "t-5")); f == nil || f.Code != "unavailable" || f.RetryAfter == 0 {
			t.Errorf("while its sender cannot be verified: %v", f)
		}
		pass(24 * 91)
		if asked := night(); len(asked) != 0 {
			t.Errorf("queries for %d sales after 91 days", len(asked))
		}
		checkLedger(t, d)
	})
}

// The bonus once per identity leaves only a hash under the key of a deleted account.
func TestTheBonusOutlivesAnAccountAsAHash(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for i, c := range []struct {
			key   string
			bonus int64
		}{{"", 3}, {"", 3}, {"key", 3}, {"key", 0}, {"another key", 3}} {
			l, user := newLedger(t, d, &store{}, c.key), addUser(t, d)
			dbtest.Exec(t, d, `UPDATE users SET provider_sub = 'farmer' WHERE id = $1`, user)
			if err := l.GrantSignup(t.Context(), user); err != nil {
				t.Fatal(err)
			}
			if have, err := l.Balance(t.Context(), user); err != nil || have != c.bonus {
				t.Errorf("account %d has %d credits, want %d (%v)", i, have, c.bonus, err)
			}
			deleteUser(t, d, l, user)
		}
		if kept := dbtest.Number(t, d, `SELECT COUNT(*) FROM bonus_identities WHERE length(identity_hash) = 64`); kept != 2 {
			t.Errorf("%d hashes, want one for each key", kept)
		}
	})
}

// In any order of changes, sequential or concurrent, the balance is the sum of the ledger and never negative, and each
// change takes effect once.
func TestLedgerInvariants(t *testing.T) {
	if err := flag.Set("rapid.checks", "16"); err != nil {
		t.Fatal(err)
	}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		rapid.Check(t, func(rt *rapid.T) {
			s := &store{reversed: map[string]bool{}}
			l, user := newLedger(t, d, s), addUser(t, d)
			name := func(i int) string { return fmt.Sprint(user, "-", i) }
			for i := range 4 {
				s.reversed[name(i)] = rapid.Bool().Draw(rt, "reversed")
			}
			do := map[string]func(i int) error{
				"buy": func(i int) error {
					_, err := l.Purchase(t.Context(), user, credit.PurchaseRequest{Platform: "platform_a",
						TransactionID: name(i), Receipt: "r", ProductID: "credits.10"})
					return err
				},
				"charge": func(i int) error { return charge(t.Context(), d, user, name(i), int64(1+3*i)) },
				"refund": func(i int) error { refund(t, d, user, name(i)); return nil },
				"give":   func(i int) error { _, err := support(t, d, user, name(i), int64(i+1)); return err },
				"take":   func(i int) error { _, err := support(t, d, user, name(i+10), -int64(i+1)); return err },
				"signup": func(int) error { return l.GrantSignup(t.Context(), user) },
				"notify": func(i int) error {
					one := &store{reversed: s.reversed, notice: receipt.Notice{
						Transaction: receipt.Transaction{ID: name(i), Token: "t"}}}
					return newLedger(t, d, one).Notify(t.Context(), "platform_a", "", nil)
				},
			}
			step := func(op string, i int) {
				err := do[op](i)
				f := fault.As(err)
				// Charging a job twice is a programming error. This test does it on purpose.
				if err != nil && (f == nil || f.Code != "insufficient_credits") && op != "charge" {
					t.Errorf("%s %d: %v", op, i, err)
				}
			}
			ops := rapid.SliceOfN(rapid.SampledFrom([]string{"buy", "buy", "charge", "charge", "refund", "refund",
				"give", "take", "signup", "notify", "notify"}), 8, 24).Draw(rt, "ops")
			atOnce := rapid.Bool().Draw(rt, "at once")
			var wg sync.WaitGroup
			for _, op := range ops {
				i := rapid.IntRange(0, 3).Draw(rt, "which")
				if atOnce {
					wg.Go(func() { step(op, i) })
					continue
				}
				before := readAccount(t, d, user)
				step(op, i)
				judgeStep(t, op, before, readAccount(t, d, user))
			}
			wg.Wait()
			judgeLedger(t, d, user)
		})
	})
}

// account is a user's balance, debt and job refunds.
type account struct{ balance, owed, refunded int64 }

func readAccount(t *testing.T, d *db.DB, user string) (a account) {
	t.Helper()
	err := d.QueryRow(t.Context(), `SELECT CAST(COALESCE((SELECT balance FROM credit_balances WHERE user_id = $1), 0) AS BIGINT),
		CAST(COALESCE((SELECT SUM(owed) FROM purchases WHERE buyer_id = $1), 0) AS BIGINT),
		CAST(COALESCE((SELECT SUM(amount) FROM credit_ledger WHERE user_id = $1 AND kind = 'refund'), 0) AS BIGINT)`,
		user).Scan(&a.balance, &a.owed, &a.refunded)
	if err != nil {
		t.Error(err)
	}
	return a
}

// judgeStep checks that only job refunds and support settle a debt, and that a job refund settles as much as
// possible.
func judgeStep(t *testing.T, op string, before, after account) {
	t.Helper()
	settled, refunded := before.owed-after.owed, after.refunded-before.refunded
	right := true
	switch op {
	case "refund":
		right = settled == min(before.owed, refunded) && after.balance-before.balance == refunded-settled
	case "buy", "give", "signup", "charge":
		right = settled == 0
	}
	if !right {
		t.Errorf("%s: from %+v to %+v", op, before, after)
	}
}

// judgeLedger checks all invariants of one account.
func judgeLedger(t *testing.T, d *db.DB, user string) {
	t.Helper()
	var balance, sum, low, given int64
	err := d.QueryRow(context.WithoutCancel(t.Context()), `SELECT CAST(COALESCE((SELECT balance FROM credit_balances WHERE user_id = $1), 0) AS BIGINT),
		CAST(COALESCE(SUM(amount), 0) AS BIGINT),
		COUNT(CASE WHEN kind IN ('purchase', 'signup', 'refund') AND amount <= 0 OR kind = 'consume' AND amount >= 0 THEN 1 END),
		CAST(COALESCE(-SUM(CASE WHEN kind = 'support' AND amount < 0 THEN amount END), 0) AS BIGINT)
		FROM credit_ledger WHERE user_id = $1`, user).Scan(&balance, &sum, &low, &given)
	if err != nil || balance != sum || balance < 0 || low != 0 {
		t.Errorf("balance %d, ledger %d, %d entries of the wrong sign, %v", balance, sum, low, err)
	}
	var bySupport int64 // debt settled by credits that support revoked
	for _, sale := range sales(t, d, user) {
		taken := dbtest.Number(t, d, `SELECT CAST(COALESCE(-SUM(amount), 0) AS BIGINT) FROM credit_ledger WHERE ref_id LIKE $1`,
			"reversal-"+sale.Platform+"-"+string(sale.OrderID)+"%")
		switch standing := sale.ReversedAt.IsZero(); {
		case standing && (taken > 0 || sale.Owed != 0), !standing && (taken < 0 || taken+sale.Owed > sale.Credits):
			t.Errorf("%+v: %d revoked", sale, taken)
		case !standing:
			bySupport += sale.Credits - taken - sale.Owed
		}
	}
	if bySupport > given {
		t.Errorf("debts of %d are settled without an entry", bySupport-given)
	}
}
