package credit_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/domain/admin"
	"cutroom/internal/domain/credit"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/upstream/receipt"
	"cutroom/internal/work/user"
)

// Support finds refused receipts for 90 days, and a client cannot fill the table.
func TestRefusedReceiptsAreKeptForSupport(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := &store{err: receipt.ErrInvalid}
		l, user := newLedger(t, d, s), addUser(t, d)
		present := func(order string) {
			t.Helper()
			_, err := l.Purchase(t.Context(), user, credit.PurchaseRequest{Platform: "platform_a", TransactionID: order,
				Receipt: "secret-token", ProductID: "credits.10"})
			if fault.As(err) == nil {
				t.Fatal(err)
			}
			dbtest.Exec(t, d, `DELETE FROM request_times`) // another test covers the rate limit
		}
		refused := func() []admin.Refusal {
			t.Helper()
			list, total, err := admin.New(d).Refusals(t.Context(), user, admin.Page{Limit: 1000})
			if err != nil || int(total) != len(list) {
				t.Fatalf("%d of %d, %v", len(list), total, err)
			}
			return list
		}
		for attempt, c := range []struct {
			err            error
			reason, advice string
		}{
			{receipt.ErrInvalid, "unverified", "cutroom credits grant " + user + " CREDITS --reason REASON --order platform_a:GPA.1"},
			{receipt.ErrUnavailable, "receipt_verify_unavailable", "cutroom purchase verify platform_a GPA.1 --user " + user + " --receipt TOKEN"},
		} {
			s.err = c.err
			present("GPA.1")
			if list := refused(); len(list) != 1 || list[0].OrderID != "GPA.1" || list[0].ProductID != "credits.10" || list[0].Reason != c.reason ||
				int(list[0].Attempts) != attempt+1 || string(list[0].Command) != c.advice || !list[0].PaidAt.IsZero() {
				t.Errorf("%+v", list)
			}
		}
		s.err = receipt.ErrInvalid
		present(strings.Repeat("long", 10_000) + "\x00")
		if list := refused(); len(list) != 2 || len(list[0].OrderID) > 255 && len(list[1].OrderID) > 255 || s.calls.Load() != 2 {
			t.Errorf("%+v after %d calls of the store", list, s.calls.Load())
		}
		s.err = nil
		buy(t, l, user, "GPA.1")
		if list := refused(); list[1].PaidAt.IsZero() || string(list[1].Command) != "cutroom user show GPA.1" {
			t.Errorf("after it was paid out: %+v", list)
		}
		s.err = receipt.ErrInvalid
		for i := range 103 {
			dbtest.Exec(t, d, `UPDATE receipt_refusals SET created_at = created_at - 10`)
			present(fmt.Sprint("forged-", i))
		}
		if list := refused(); len(list) != 100 || list[0].OrderID != "forged-102" {
			t.Errorf("%d refusals are kept, the newest is of %s", len(list), list[0].OrderID)
		}
		for _, step := range []struct{ days, left int }{{89, 100}, {2, 0}} {
			dbtest.Exec(t, d, `UPDATE receipt_refusals SET created_at = created_at - $1`, int64(step.days)*86400_000)
			if err := l.SweepRefusals(t.Context()); err != nil || len(refused()) != step.left {
				t.Errorf("after %d days, %d refusals are left (%v)", step.days, len(refused()), err)
			}
		}
	})
}

// Support spends no order for an account that is being deleted: the credits would be lost with it.
func TestSupportGrantsNothingDuringADeletion(t *testing.T) {
	d := dbtest.SQLite(t)
	owner := addUser(t, d)
	dbtest.Exec(t, d, `UPDATE users SET erasing_at = now_ms() WHERE id = $1`, owner)
	if _, err := support(t, d, owner, "gift", 5); !errors.Is(err, user.ErrDeleted) {
		t.Errorf("granted: %v", err)
	}
	if have := dbtest.Number(t, d, `SELECT COUNT(*) FROM credit_ledger`); have != 0 {
		t.Errorf("%d entries", have)
	}
}

func TestParseOrder(t *testing.T) {
	if o, err := credit.ParseOrder("Platform_A: GPA.1"); err != nil || o != (credit.Order{Platform: "platform_a", TransactionID: "GPA.1"}) {
		t.Errorf("%+v, %v", o, err)
	}
	for _, text := range []string{"", "GPA.1", "platform_a:", "platform_c:GPA.1", "platform_a: \x00", "platform_a:" + strings.Repeat("x", 256)} {
		if o, err := credit.ParseOrder(text); err == nil {
			t.Errorf("%q is the order %+v", text, o)
		}
	}
}
