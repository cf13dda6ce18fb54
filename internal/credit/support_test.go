package credit_test

import (
	"testing"

	"cutroom/internal/credit"
	"cutroom/internal/db"
	"cutroom/internal/dbtest"
	"cutroom/internal/fault"
)

func support(t *testing.T, d *db.DB, user, id string, amount int64) (fresh bool, err error) {
	t.Helper()
	err = d.InTx(t.Context(), func(tx *db.Tx) (err error) {
		fresh, err = credit.Support(t.Context(), tx, user, id, amount)
		return err
	})
	return fresh, err
}

func TestSupportGivesAndTakesOnceAndNeverBelowZero(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l, user := newLedger(t, d, &store{}), addUser(t, d)
		for i, step := range []struct {
			id     string
			amount int64
			fresh  bool
			code   string
			left   int64
		}{
			{"a", -1, false, "insufficient_credits", 0}, // the user has no balance row yet
			{"b", 5, true, "", 5},
			{"b", 5, false, "", 5},
			{"c", -6, false, "insufficient_credits", 5},
			{"c", -5, true, "", 0}, // a refused request may be repeated
			{"c", -5, false, "", 0},
		} {
			fresh, err := support(t, d, user, step.id, step.amount)
			code := ""
			if f := fault.As(err); f != nil {
				code = f.Answer()
			} else if err != nil {
				t.Fatal(err)
			}
			if fresh != step.fresh || code != step.code {
				t.Errorf("step %d: %v, %q; want %v, %q", i, fresh, code, step.fresh, step.code)
			}
			if have, err := l.Balance(t.Context(), user); err != nil || have != step.left {
				t.Errorf("step %d: balance %d, %v; want %d", i, have, err, step.left)
			}
		}
		checkLedger(t, d)
	})
}
