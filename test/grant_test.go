package test

import (
	"regexp"
	"testing"

	"cutroom/internal/testkit/apitest"
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
