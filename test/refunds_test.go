// Refunds that the stores announce: credits taken and given back, shares, forged and unconfirmed notifications.

package test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"cutroom/internal/sandbox"
	"cutroom/internal/sandbox/fake"
	"cutroom/internal/sandbox/store"
	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/dbtest"
)

const (
	notifyA = "/api/v2/stores/platform_a/notifications"
	notifyB = "/api/v2/stores/platform_b/notifications"
)

// push sends a store's notification.
func push(t testing.TB, s *apitest.Server, path string, p store.Push) *apitest.Response {
	t.Helper()
	header := http.Header{}
	if p.Bearer != "" {
		header.Set("Authorization", "Bearer "+p.Bearer)
	}
	return s.Do(t, apitest.Request{Method: "POST", Path: path, Raw: string(p.Body), Header: header})
}

type revenue struct{ PurchaseCount, CreditsSold, PayingUsers int }

func TestStoreRefundsTakeCreditsBack(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	u, admin := s.SignIn(t), s.Admin(t)
	expect := func(what string, balance, purchases, credits int) {
		t.Helper()
		if have := u.Balance(t); have != balance {
			t.Errorf("%s: balance %d, want %d", what, have, balance)
		}
		var r revenue
		if admin.Get(t, "/api/v2/admin/revenue").Expect(200).JSON(&r); r.PurchaseCount != purchases || r.CreditsSold != credits {
			t.Errorf("%s: revenue %+v, want %d purchases of %d credits", what, r, purchases, credits)
		}
	}
	a := s.World.PurchaseA(store.PurchaseA{ProductID: "credits.10", AccountID: u.Sub})
	purchase(t, u, "platform_a", a.OrderID, a.Token, a.ProductID).Expect(200)
	b, receipt := s.World.TransactionB(store.TransactionB{ProductID: "credits.50", AccountToken: u.Sub})
	purchase(t, u, "platform_b", b.TransactionID, receipt, b.ProductID).Expect(200)
	pushA := s.World.PlatformA.Push(a)
	pushB := s.World.PlatformB.Push(b, "REFUND")

	// A refund that the store does not confirm changes no balance.
	push(t, s, notifyA, pushA).Expect(200)
	push(t, s, notifyB, pushB).Expect(200)
	expect("claimed", 63, 2, 60)

	for range 3 { // the other purchases are unknown to the service
		other := s.World.PurchaseA(store.PurchaseA{ProductID: "credits.10"})
		if _, err := s.World.PlatformA.Refund(other.Token); err != nil {
			t.Fatal(err)
		}
		push(t, s, notifyA, s.World.PlatformA.Push(other)).Expect(200)
	}
	if _, err := s.World.PlatformA.Refund(a.Token); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		push(t, s, notifyA, pushA).Expect(200)
		expect("refunded at platform_a", 53, 1, 50)
	}
	if _, err := s.World.PlatformB.Refund(b.TransactionID, true); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		push(t, s, notifyB, pushB).Expect(200)
		expect("refunded at platform_b", 3, 0, 0)
	}
	if _, err := s.World.PlatformB.Refund(b.TransactionID, false); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		push(t, s, notifyB, s.World.PlatformB.Push(b, "REFUND_REVERSED")).Expect(200)
		expect("the refund reversed", 53, 1, 50)
	}
	// A refunded receipt stays spent.
	var again apitest.Purchased
	purchase(t, u, "platform_a", a.OrderID, a.Token, a.ProductID).Expect(200).JSON(&again)
	if again.Granted != 0 {
		t.Errorf("a refunded receipt paid again: %+v", again)
	}
}

func TestNotificationsMustBeTheStores(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	u := s.SignIn(t)
	a := s.World.PurchaseA(store.PurchaseA{ProductID: "credits.10"})
	purchase(t, u, "platform_a", a.OrderID, a.Token, a.ProductID).Expect(200)
	b, receipt := s.World.TransactionB(store.TransactionB{ProductID: "credits.10"})
	purchase(t, u, "platform_b", b.TransactionID, receipt, b.ProductID).Expect(200)
	if _, err := s.World.PlatformA.Refund(a.Token); err != nil {
		t.Fatal(err)
	}
	if _, err := s.World.PlatformB.Refund(b.TransactionID, true); err != nil {
		t.Fatal(err)
	}
	good := s.World.PlatformA.Push(a)
	for name, changes := range map[string]map[string]any{
		"other audience": {"aud": "somebody-else"}, "other sender": {"email": "mallory@example.test"}, "other issuer": {"iss": "https://issuer.example"},
		"expired": {"exp": 1700000000}, "address not verified": {"email_verified": false},
	} {
		bearer := s.World.PlatformA.PushToken(changes)
		t.Run(name, func(t *testing.T) {
			push(t, s, notifyA, store.Push{Bearer: bearer, Body: good.Body}).Error(401, "invalid_signature")
		})
	}
	push(t, s, notifyA, store.Push{Body: good.Body}).Error(401, "invalid_signature")
	push(t, s, notifyA, store.Push{Bearer: u.Token, Body: good.Body}).Error(401, "invalid_signature")
	forged := b
	forged.Forged = true
	push(t, s, notifyB, s.World.PlatformB.Push(forged, "REFUND")).Error(401, "invalid_signature")
	for _, body := range []string{``, `{`, `{}`, `{"signedPayload":7}`, `{"signedPayload":"a.b.c"}`} {
		push(t, s, notifyB, store.Push{Body: []byte(body)}).Error(401, "invalid_signature")
	}
	if have := u.Balance(t); have != 23 {
		t.Errorf("balance %d after forged notifications, want 23", have)
	}
	// A signed notification that is unreadable or concerns nothing known gets 200, so the store does not send it again.
	for _, body := range []string{``, `{`, `{"message":{"data":"!"}}`, `{"message":{"data":"e30="}}`} {
		push(t, s, notifyA, store.Push{Bearer: good.Bearer, Body: []byte(body)}).Expect(200)
	}
	for _, kind := range []string{"TEST", "ONE_TIME_CHARGE", "CONSUMPTION_REQUEST"} {
		push(t, s, notifyB, s.World.PlatformB.Push(b, kind)).Expect(200)
	}
	elsewhere := b
	elsewhere.BundleID = "com.example.other"
	push(t, s, notifyB, s.World.PlatformB.Push(elsewhere, "REFUND")).Expect(200)
	if have := u.Balance(t); have != 23 {
		t.Errorf("balance %d, want 23", have)
	}
	// One that the push subscription does not wrap cannot be read, which is logged.
	push(t, s, notifyA, store.Push{Bearer: good.Bearer, Body: []byte(`{"version":"1.0","packageName":"` + sandbox.PackageName + `"}`)}).Expect(200)
	apitest.Eventually(t, maxWait, func() bool { return strings.Contains(s.Logs(), "payload unwrapping") }, s.Logs)
	// If the store is down when it should confirm, the notification still gets 200, and the service asks the store
	// again later.
	s.World.FailStores(t, fake.Rule{Step: store.StepTransaction, Kind: fake.KindStatus, Status: 503})
	push(t, s, notifyB, s.World.PlatformB.Push(b, "REFUND")).Expect(200)
	s.World.Heal()
	push(t, s, notifyB, s.World.PlatformB.Push(b, "REFUND")).Expect(200)
	if have := u.Balance(t); have != 13 {
		t.Errorf("balance %d after the outage, want 13", have)
	}
}

// platform_b refunds shares, and reverses refunds. The credit package tests the arithmetic.
func TestSharesAreRefundedAndReversed(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	u, admin := s.SignIn(t), s.Admin(t)
	b, signed := s.World.TransactionB(store.TransactionB{ProductID: "credits.150", Quantity: 3, AccountToken: u.Sub})
	purchase(t, u, "platform_b", b.TransactionID, signed, b.ProductID).Expect(200)
	say := func(kind string, refunded bool, share int64, balance, sold int) {
		t.Helper()
		now, err := s.World.PlatformB.RefundShare(b.TransactionID, refunded, share)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			push(t, s, notifyB, s.World.PlatformB.Push(now, kind)).Expect(200)
			var r revenue
			if admin.Get(t, "/api/v2/admin/revenue").Expect(200).JSON(&r); r.CreditsSold != sold {
				t.Errorf("%s of %d: revenue %+v, want %d credits", kind, share, r, sold)
			}
			if have := u.Balance(t); have != balance {
				t.Errorf("%s of %d: balance %d, want %d", kind, share, have, balance)
			}
		}
	}
	say("REFUND", true, 33333, 303, 300)
	say("REFUND", true, 66667, 153, 150)
	say("REFUND_REVERSED", false, 0, 453, 450)
	say("REFUND", true, 33333, 303, 300)
	say("REFUND", true, 0, 3, 0)
	say("REFUND_REVERSED", false, 0, 453, 450)
	// Nothing moves that the store does not confirm.
	push(t, s, notifyB, s.World.PlatformB.Push(store.TransactionB{TransactionID: b.TransactionID, ProductID: b.ProductID, RevokedAtMs: 1}, "REFUND")).Expect(200)
	if have := u.Balance(t); have != 453 {
		t.Errorf("balance %d after an unconfirmed refund", have)
	}
	early, signed := s.World.TransactionB(store.TransactionB{ProductID: "credits.150", Quantity: 3, RevokedAtMs: 1, RefundedShare: 33333})
	var got apitest.Purchased
	purchase(t, u, "platform_b", early.TransactionID, signed, early.ProductID).Expect(200).JSON(&got)
	if push(t, s, notifyB, s.World.PlatformB.Push(early, "REFUND")).Expect(200); got.Granted != 300 || u.Balance(t) != 753 {
		t.Errorf("presented after a refund of a third: %+v, balance %d", got, u.Balance(t))
	}
}

// If the store cannot confirm a notification because it refuses the service, the service asks again within minutes.
func TestAStoreThatRefusesUsIsAskedAgain(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t)
	u := s.SignIn(t)
	b, signed := s.World.TransactionB(store.TransactionB{ProductID: "credits.10"})
	purchase(t, u, "platform_b", b.TransactionID, signed, b.ProductID).Expect(200)
	if _, err := s.World.PlatformB.Refund(b.TransactionID, true); err != nil {
		t.Fatal(err)
	}
	s.World.FailStores(t, fake.Rule{Kind: fake.KindStatus, Status: 403})
	push(t, s, notifyB, s.World.PlatformB.Push(b, "REFUND")).Expect(200)
	if have := u.Balance(t); have != 13 {
		t.Errorf("balance %d before the store confirmed the refund", have)
	}
	if n := dbtest.Number(t, s.Database(t), `SELECT COUNT(*) FROM sale_notices WHERE due_at < now_ms() + 60000`); n != 1 {
		t.Errorf("%d notifications are kept for the next minute", n)
	}
	s.World.Heal()
}

func TestNotificationsAreOffWhileNotConfigured(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t, apitest.Env("IAP_PLATFORM_A_NOTIFICATION_AUDIENCE", ""), apitest.Env("IAP_PLATFORM_A_NOTIFICATION_SENDER", ""),
		apitest.Env("IAP_PLATFORM_B_KEY_ID", ""), apitest.Env("SIGNUP_BONUS_PER_IDENTITY", "once"),
		apitest.Env("SIGNUP_BONUS_KEY", strings.Repeat("bonus-key-", 4)))
	for _, path := range []string{notifyA, notifyB} {
		push(t, s, path, store.Push{Bearer: "x", Body: json.RawMessage(`{}`)}).Expect(404)
	}
	// Here a person gets the bonus once, even after deleting the account.
	u := s.SignIn(t)
	first := u.Sub
	u.Send(t, apitest.Request{Method: "DELETE", Path: "/api/v2/auth/account", Valid: true}).Expect(204)
	u.SignInAgain(t)
	if have := u.Balance(t); have != 0 || u.Sub == first {
		t.Errorf("balance %d after deleting the account and signing in again, want 0", have)
	}
	if have := s.SignIn(t).Balance(t); have != 3 {
		t.Errorf("another user has %d, want 3", have)
	}
	if strings.Contains(s.Logs(), "not granted") {
		t.Error("the bonus failed")
	}
}
