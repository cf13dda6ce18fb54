package idempotency_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/work/idempotency"
)

// onBothDatabases runs a test with the users u and v.
func onBothDatabases(t *testing.T, test func(t *testing.T, d *db.DB)) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dbtest.Exec(t, d, `INSERT INTO users (id, provider, provider_sub, created_at, last_active_at)
			VALUES ('u', 'provider_a', '1', 0, 0), ('v', 'provider_a', '2', 0, 0)`)
		test(t, d)
	})
}

// answering is work that always succeeds.
func answering(answer string) func(*db.Tx) (string, error) {
	return func(*db.Tx) (string, error) { return answer, nil }
}

func TestOnceRemembersForADay(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, d *db.DB) {
		k := idempotency.Key{UserID: "u", Value: "k", Fingerprint: "f"}
		once := func(k idempotency.Key, offered, want string, wantFirst bool) {
			t.Helper()
			got, first, err := idempotency.Once(t.Context(), d, k, answering(offered))
			if err != nil || got != want || first != wantFirst {
				t.Errorf("%+v: %q, first %v, %v; want %q, %v", k, got, first, err, want, wantFirst)
			}
		}
		once(k, "a", "a", true)
		once(k, "b", "a", false)
		once(idempotency.Key{UserID: "v", Value: "k", Fingerprint: "f"}, "c", "c", true)
		once(idempotency.Key{UserID: "u", Value: "K", Fingerprint: "f"}, "d", "d", true)
		for range 2 { // no key, no memory
			once(idempotency.Key{UserID: "u", Fingerprint: "f"}, "e", "e", true)
		}
		dbtest.Exec(t, d, `INSERT INTO idempotency_keys (user_id, key, fingerprint, answer, created_at)
			VALUES ('u', 'old', 'of the bytes', 'o', now_ms())`)
		once(idempotency.Key{UserID: "u", Value: "old", Fingerprint: "f"}, "p", "o", false) // from before the upgrade
		other := idempotency.Key{UserID: "u", Value: "k", Fingerprint: "g"}
		if _, _, err := idempotency.Once(t.Context(), d, other, answering("x")); fault.As(err) == nil || fault.As(err).Kind != fault.Invalid {
			t.Errorf("the key of another request: %v", err)
		}
		age := func(ms int64) {
			t.Helper()
			dbtest.Exec(t, d, `UPDATE idempotency_keys SET created_at = now_ms() - $1`, ms)
		}
		age(idempotency.Lifetime.Milliseconds() - 60_000)
		once(k, "b", "a", false)
		if err := idempotency.Sweep(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		once(k, "b", "a", false)
		age(idempotency.Lifetime.Milliseconds())
		once(other, "z", "z", true) // forgotten, before any sweep
		age(idempotency.Lifetime.Milliseconds())
		if err := idempotency.Sweep(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		var n int
		if err := d.QueryRow(t.Context(), `SELECT COUNT(*) FROM idempotency_keys`).Scan(&n); err != nil || n != 0 {
			t.Errorf("%d keys left (%v)", n, err)
		}
	})
}

// Of many equal requests one does the work, and all get its answer, even those whose own work failed because the
// first had spent the credits.
func TestConcurrentRequestsGetOneAnswer(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, d *db.DB) {
		dbtest.Exec(t, d, `INSERT INTO credit_balances (user_id, balance) VALUES ('u', 1)`)
		answers := make([]string, 24)
		firsts := make([]bool, len(answers))
		var wg sync.WaitGroup
		for i := range answers {
			wg.Go(func() {
				var err error
				answers[i], firsts[i], err = idempotency.Once(t.Context(), d, idempotency.Key{UserID: "u", Value: "k", Fingerprint: "f"}, func(tx *db.Tx) (string, error) {
					n, err := tx.Exec(t.Context(), `UPDATE credit_balances SET balance = balance - 1 WHERE user_id = 'u' AND balance >= 1`)
					if err == nil && n == 0 {
						err = errors.New("nothing left")
					}
					return fmt.Sprint("job ", i), err
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		count := 0
		for i := range answers {
			if answers[i] != answers[0] {
				t.Errorf("%q and %q", answers[i], answers[0])
			}
			if firsts[i] {
				count++
			}
		}
		if count != 1 {
			t.Errorf("%d were the first", count)
		}
	})
}
