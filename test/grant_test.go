package test

import (
	"regexp"
	"sync"
	"testing"

	"cutroom/internal/apitest"
)

const grantPath = "/api/v2/credits/admin-grant"

func TestAdminGrant(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	user, admin := s.SignIn(t), s.Admin(t)
	user.Post(t, grantPath, M{"productId": "credits.10"}).Error(403, "admin_required")
	user.Send(t, apitest.Request{Method: "POST", Path: grantPath, Raw: "{"}).Error(403, "admin_required")

	var first, second apitest.Purchased
	admin.Post(t, grantPath, M{"productId": "credits.10"}).Expect(200).JSON(&first)
	admin.Post(t, grantPath, M{"productId": "credits.50"}).Expect(200).JSON(&second)
	if first.Granted != 10 || first.Balance != 13 || second.Granted != 50 || second.Balance != 63 {
		t.Errorf("grants %+v, %+v", first, second)
	}
	if id := regexp.MustCompile(`^admin-[0-9a-f-]{36}$`); !id.MatchString(first.TransactionID) || first.TransactionID == second.TransactionID {
		t.Errorf("transaction ids %q, %q", first.TransactionID, second.TransactionID)
	}
	if b := admin.Balance(t); b != 63 {
		t.Errorf("balance %d, want 63", b)
	}
}

func TestAdminGrantCapHoldsUnderParallelCalls(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t, apitest.Env("ADMIN_GRANT_DAILY_CAP", "100"))
	admin, other := s.Admin(t), s.Admin(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	granted, refused := 0, 0
	for range 16 {
		wg.Go(func() {
			res := admin.Post(t, grantPath, M{"productId": "credits.10"})
			mu.Lock()
			defer mu.Unlock()
			switch res.Status {
			case 200:
				granted++
			default:
				res.Error(429, "admin_grant_daily_cap_exceeded")
				if d := res.Detail(); d != "granted=100 cap=100" {
					t.Errorf("detail %q, want granted=100 cap=100", d)
				}
				refused++
			}
		})
	}
	wg.Wait()
	if granted != 10 || refused != 6 {
		t.Errorf("%d granted and %d refused of 16 with room for 10", granted, refused)
	}
	if b := admin.Balance(t); b != 103 {
		t.Errorf("balance %d, want 103", b)
	}
	// The cap counts that admin's grants; purchases and other admins do not count.
	other.Post(t, grantPath, M{"productId": "credits.50"}).Expect(200)
	res := other.Post(t, grantPath, M{"productId": "credits.150"})
	if res.Error(429, "admin_grant_daily_cap_exceeded"); res.Detail() != "granted=50 cap=100" {
		t.Errorf("detail %q, want granted=50 cap=100", res.Detail())
	}
	other.Post(t, grantPath, M{"productId": "credits.50"}).Expect(200)
}
