// Purchases on both platforms: grants, reasons for a refusal, limits for forged receipts, and outages of a store.

package test

import (
	"fmt"
	"strings"
	"testing"

	"cutroom/internal/sandbox/fake"
	"cutroom/internal/sandbox/store"
	"cutroom/internal/testkit/apitest"
)

const purchasePath = "/api/v2/credits/purchase"

// purchase posts a purchase as u and returns the answer.
func purchase(t testing.TB, u *apitest.User, platform, transaction, receipt, product string) *apitest.Response {
	t.Helper()
	return u.Send(t, apitest.Request{Method: "POST", Path: purchasePath, JSON: M{
		"platform": platform, "transactionId": transaction, "receipt": receipt, "productId": product}})
}

// buyA registers a purchase at platform_a and posts it.
func buyA(t testing.TB, u *apitest.User, p store.PurchaseA) *apitest.Response {
	t.Helper()
	if p.ProductID == "" {
		p.ProductID = "credits.10"
	}
	p = u.World.PurchaseA(p)
	return purchase(t, u, "platform_a", p.OrderID, p.Token, p.ProductID)
}

// buyB registers a transaction at platform_b and posts it.
func buyB(t testing.TB, u *apitest.User, tr store.TransactionB) *apitest.Response {
	t.Helper()
	if tr.ProductID == "" {
		tr.ProductID = "credits.10"
	}
	tr, receipt := u.World.TransactionB(tr)
	return purchase(t, u, "platform_b", tr.TransactionID, receipt, tr.ProductID)
}

func TestPurchaseGrantsTheProduct(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	for product, credits := range map[string]int{"credits.10": 10, "credits.50": 50, "credits.150": 150} {
		u := s.SignIn(t)
		var got apitest.Purchased
		buyA(t, u, store.PurchaseA{ProductID: product}).Expect(200).JSON(&got)
		if got.Granted != credits || got.Balance != 3+credits || got.TransactionID == "" {
			t.Errorf("%s on platform_a: %+v", product, got)
		}
		buyB(t, u, store.TransactionB{ProductID: product, AccountToken: u.Sub}).Expect(200).JSON(&got)
		if got.Granted != credits || got.Balance != 3+2*credits {
			t.Errorf("%s on platform_b: %+v", product, got)
		}
		if b := u.Balance(t); b != 3+2*credits {
			t.Errorf("balance %d, want %d", b, 3+2*credits)
		}
	}
}

// refusedFor fails the test unless the receipt was refused for the reason.
func refusedFor(t *testing.T, res *apitest.Response, reason string) {
	t.Helper()
	if res.Error(400, "receipt_invalid"); res.Detail() != reason {
		t.Errorf("refused as %q, want %q", res.Detail(), reason)
	}
}

// A client sees each of these reasons. The receipt package tests all receipts.
func TestReceiptsAreRefusedForAReason(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	u := s.SignIn(t)
	for name, c := range map[string]struct {
		p    store.PurchaseA
		want string
	}{
		"cancelled":      {store.PurchaseA{PurchaseState: 1}, "cancelled"},
		"pending":        {store.PurchaseA{PurchaseState: 2, Omit: []string{"orderId"}}, "pending"},
		"licence tester": {store.PurchaseA{Set: map[string]any{"purchaseType": 0}}, "test_purchase"},
	} {
		t.Run("platform_a "+name, func(t *testing.T) { refusedFor(t, buyA(t, u, c.p), c.want) })
	}
	for name, c := range map[string]struct {
		tr   store.TransactionB
		want string
	}{
		"family shared": {store.TransactionB{OwnershipType: "FAMILY_SHARED"}, "other_account"},
		"revoked":       {store.TransactionB{RevokedAtMs: 1760000000000}, "revoked"},
	} {
		t.Run("platform_b "+name, func(t *testing.T) { refusedFor(t, buyB(t, u, c.tr), c.want) })
	}
	refusedFor(t, buyB(t, u, store.TransactionB{Forged: true}), "unverified")
	// A receipt of another product, and hostile text.
	p := s.World.PurchaseA(store.PurchaseA{ProductID: "credits.10"})
	refusedFor(t, purchase(t, u, "platform_a", p.OrderID, p.Token, "credits.150"), "mismatch")
	refusedFor(t, purchase(t, u, "platform_a", p.OrderID, "../../../"+p.Token+"?x=", "credits.10"), "unverified")
	refusedFor(t, purchase(t, u, "platform_b", "../../x?y=%2f", "receipt", "credits.10"), "unverified")
	if b := u.Balance(t); b != 3 {
		t.Errorf("refused purchases changed the balance to %d", b)
	}
	buyA(t, u, store.PurchaseA{AccountID: u.Sub}).Expect(200)
	buyB(t, u, store.TransactionB{AccountToken: u.Sub}).Expect(200)
}

// A user with forged receipts is limited. Other users can still buy.
func TestForgedReceiptsAreLimitedOverAllReplicas(t *testing.T) {
	t.Parallel()
	replicas := 1
	if apitest.Postgres() {
		replicas = 2
	}
	s := apitest.Start(t, apitest.Replicas(replicas), apitest.Env("IAP_PLATFORM_A_ALLOW_TEST", "true"))
	forger := s.SignIn(t)
	bought := s.World.PurchaseA(store.PurchaseA{ProductID: "credits.10", Set: map[string]any{"purchaseType": 0}})
	purchase(t, forger, "platform_a", bought.OrderID, bought.Token, bought.ProductID).Expect(200) // IAP_PLATFORM_A_ALLOW_TEST
	present := func(i int) *apitest.Response {
		return purchase(t, at(forger, s.Replica(i%replicas)), "platform_a", fmt.Sprint("GPA.", i), "forged", "credits.10")
	}
	for i := range 20 {
		refusedFor(t, present(i), "unverified")
	}
	asked := s.World.PlatformA.Faults.Count(store.StepPurchase)
	for i := range 4 {
		if res := present(i).Error(429, "rate_limited"); res.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	if now := s.World.PlatformA.Faults.Count(store.StepPurchase); now != asked {
		t.Errorf("a limited user caused %d calls of the store", now-asked)
	}
	// A repeat of a granted purchase succeeds, and other users buy.
	var got apitest.Purchased
	purchase(t, forger, "platform_a", bought.OrderID, bought.Token, bought.ProductID).Expect(200).JSON(&got)
	if got.Granted != 0 || got.Balance != 13 {
		t.Errorf("a repeat: %+v", got)
	}
	buyA(t, s.SignIn(t), store.PurchaseA{}).Expect(200)
}

// A purchase by a promotion code has no order: its id is the purchase token, for the app and for support.
func TestPromotionCodes(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	u := s.SignIn(t)
	promotion := func() store.PurchaseA {
		return s.World.PurchaseA(store.PurchaseA{ProductID: "credits.10", Set: map[string]any{"purchaseType": 1}, Omit: []string{"orderId"}})
	}
	p := promotion()
	purchase(t, u, "platform_a", "", p.Token, p.ProductID).Error(400, "missing_receipt")
	refusedFor(t, purchase(t, u, "platform_a", p.OrderID, p.Token, p.ProductID), "mismatch")
	for _, granted := range []int{10, 0} {
		var got apitest.Purchased
		if purchase(t, u, "platform_a", p.Token, p.Token, p.ProductID).Expect(200).JSON(&got); got.Granted != granted || got.Balance != 13 {
			t.Errorf("%+v, want %d granted", got, granted)
		}
	}
	other := promotion()
	if out := succeeds(t, s, "purchase", "verify", "platform_a", other.Token, "--user", u.Sub, "--receipt", other.Token); !strings.Contains(out, "+10 credits") {
		t.Errorf("purchase verify: %s", out)
	}
	part := store.PurchaseA{ProductID: "credits.10", Set: map[string]any{"quantity": 3, "refundableQuantity": 1}}
	var got apitest.Purchased
	if buyA(t, u, part).Expect(200).JSON(&got); got.Granted != 10 || got.Balance != 33 {
		t.Errorf("two of three refunded: %+v", got)
	}
	// A cart of two products has one order.
	cart := s.World.PurchaseA(store.PurchaseA{ProductID: "credits.10"})
	purchase(t, u, "platform_a", cart.OrderID, cart.Token, "credits.10").Expect(200)
	if purchase(t, u, "platform_a", cart.OrderID, cart.Token, "credits.50").Expect(200).JSON(&got); got.Granted != 0 {
		t.Errorf("another product of the order: %+v", got)
	}
	apitest.Eventually(t, maxWait, func() bool { return strings.Contains(s.Logs(), "came again with another product") }, s.Logs)
}

// The store's review buys in the sandbox with the released app.
func TestTheReviewBuysInTheSandbox(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t, apitest.Env("IAP_PLATFORM_B_ENV", "production"), apitest.Env("IAP_PLATFORM_B_ALLOW_TEST", "true"))
	u, admin := s.SignIn(t), s.Admin(t)
	bought := store.TransactionB{Environment: "Production", ProductID: "credits.10", AccountToken: u.Sub}
	test := store.TransactionB{Environment: "Sandbox", ProductID: "credits.150", Quantity: 6, AccountToken: u.Sub}
	buyB(t, u, bought).Expect(200)
	tested, signed := s.World.TransactionB(test)
	var got apitest.Purchased
	if purchase(t, u, "platform_b", tested.TransactionID, signed, tested.ProductID).Expect(200).JSON(&got); got.Granted != 900 {
		t.Errorf("a test: %+v", got)
	}
	refusedFor(t, buyB(t, u, test), "test_purchase")
	test.Quantity, test.ProductID = 2, "credits.50"
	buyB(t, u, test).Expect(200) // 1,000 in all
	refusedFor(t, buyB(t, u, store.TransactionB{Environment: "Sandbox", ProductID: "credits.10"}), "test_purchase")
	refusedFor(t, purchase(t, u, "platform_b", "2000000000000001", "r", "credits.10"), "unverified")
	// An app that was never released gets 401 from the production address.
	failB(t, s, fake.Rule{Step: store.StepTransaction, Kind: fake.KindStatus, Status: 401})
	reviewer := s.SignIn(t)
	buyB(t, reviewer, store.TransactionB{Environment: "Sandbox"}).Expect(200)
	failB(t, s, fake.Rule{Step: store.StepSandbox, Kind: fake.KindStatus, Status: 401})
	buyB(t, reviewer, store.TransactionB{Environment: "Sandbox"}).Error(502, "receipt_verify_unavailable")
	s.World.Heal()
	var r revenue
	if admin.Get(t, "/api/v2/admin/revenue").Expect(200).JSON(&r); r.PurchaseCount != 1 || r.CreditsSold != 10 || r.PayingUsers != 1 {
		t.Errorf("revenue %+v, want one purchase of 10 credits", r)
	}
	var list struct{ Purchases []struct{ Test bool } }
	if admin.Get(t, "/api/v2/admin/users/"+u.Sub+"/purchases").Expect(200).JSON(&list); len(list.Purchases) != 3 || !list.Purchases[0].Test || list.Purchases[2].Test {
		t.Errorf("purchases %+v", list)
	}
	// Notifications of the sandbox are about tests.
	refunded, err := s.World.PlatformB.Refund(tested.TransactionID, true)
	if err != nil {
		t.Fatal(err)
	}
	push(t, s, notifyB, s.World.PlatformB.Push(refunded, "REFUND")).Expect(200)
	if have := u.Balance(t); have != 3+10+100 {
		t.Errorf("balance %d after the refund of a test", have)
	}
}

func failB(t *testing.T, s *apitest.Server, rule fake.Rule) {
	t.Helper()
	if err := s.World.PlatformB.Faults.Add(rule); err != nil {
		t.Fatal(err)
	}
}

// The store refuses the service, not the buyer: nothing counts against the user, and everything counts as a failure of
// the store.
func TestAStoreThatRefusesTheService(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Env("OPS_ADDR", "127.0.0.1:"+freePort(t)))
	u := s.SignIn(t)
	p := s.World.PurchaseA(store.PurchaseA{ProductID: "credits.10"})
	tr, signed := s.World.TransactionB(store.TransactionB{ProductID: "credits.10"})
	a := func() *apitest.Response { return purchase(t, u, "platform_a", p.OrderID, p.Token, p.ProductID) }
	b := func() *apitest.Response { return purchase(t, u, "platform_b", tr.TransactionID, signed, tr.ProductID) }
	const down = "receipt_verify_unavailable"
	for _, c := range []struct {
		of     string
		host   *fake.Faults
		rule   fake.Rule
		buy    func() *apitest.Response
		status int
		code   string
	}{
		{"platform_a", s.World.PlatformA.Faults, fake.Rule{Step: store.StepToken, Status: 400, Body: `{"error":"invalid_grant"}`}, a, 400, "receipt_invalid"},
		{"platform_a", s.World.PlatformA.Faults, fake.Rule{Step: store.StepToken, Status: 403}, a, 502, down},
		{"platform_a", s.World.PlatformA.Faults, fake.Rule{Step: store.StepToken, Status: 404}, a, 502, down},
		{"platform_a", s.World.PlatformA.Faults, fake.Rule{Step: store.StepPurchase, Status: 401}, a, 502, down},
		{"platform_a", s.World.PlatformA.Faults, fake.Rule{Step: store.StepPurchase, Status: 403}, a, 502, down},
		{"platform_b", s.World.PlatformB.Faults, fake.Rule{Step: store.StepTransaction, Status: 401}, b, 502, down},
		{"platform_b", s.World.PlatformB.Faults, fake.Rule{Step: store.StepTransaction, Status: 404, Body: `{"errorCode":4040004}`}, b, 502, down},
	} {
		c.rule.Kind = fake.KindStatus
		if err := c.host.Add(c.rule); err != nil {
			t.Fatal(err)
		}
		before := metricOf(t, s, `cutroom_dependency_errors_total{of="`+c.of+`"}`)
		const tries = 5 // 35 in all: with the limit of 20 refusals the last would be 429
		for range tries {
			c.buy().Error(c.status, c.code)
		}
		if n := metricOf(t, s, `cutroom_dependency_errors_total{of="`+c.of+`"}`) - before; n < tries {
			t.Errorf("%+v: %v failures are counted, want %d", c.rule, n, tries)
		}
		s.World.Heal()
	}
	for order, reason := range map[string]string{p.OrderID: down, tr.TransactionID: down} {
		if out := succeeds(t, s, "user", "show", order); !strings.Contains(out, reason) {
			t.Errorf("user show %s: %s", order, out)
		}
	}
	a().Expect(200)
	b().Expect(200)
}

// The receipt package tests which failures count as outages.
func TestStoreOutages(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Env("HTTP_REQUEST_TIMEOUT_MS", "2000"), apitest.Env("HTTP_SOCKET_TIMEOUT_MS", "2000"))
	u := s.SignIn(t)
	p := s.World.PurchaseA(store.PurchaseA{ProductID: "credits.10"})
	tr, receipt := s.World.TransactionB(store.TransactionB{ProductID: "credits.10"})
	both := func(t *testing.T, status int, code string) {
		t.Helper()
		purchase(t, u, "platform_a", p.OrderID, p.Token, p.ProductID).Error(status, code)
		purchase(t, u, "platform_b", tr.TransactionID, receipt, tr.ProductID).Error(status, code)
	}
	for name, rule := range map[string]fake.Rule{
		"503":   {Kind: fake.KindStatus, Status: 503},
		"stall": {Kind: fake.KindStall},
	} {
		t.Run(name, func(t *testing.T) {
			s.World.FailStores(t, rule)
			defer s.World.Heal()
			both(t, 502, "receipt_verify_unavailable")
		})
	}
	// Support finds the orders, even the one whose request ended before the store answered.
	for _, order := range []string{p.OrderID, tr.TransactionID} {
		if out := succeeds(t, s, "user", "show", order); !strings.Contains(out, "receipt_verify_unavailable") ||
			!strings.Contains(out, "cutroom purchase verify") {
			t.Errorf("user show %s: %s", order, out)
		}
	}
	failB(t, s, fake.Rule{Step: store.StepTransaction, Kind: fake.KindStatus, Status: 404})
	if err := s.World.PlatformA.Faults.Add(fake.Rule{Step: store.StepPurchase, Kind: fake.KindStatus, Status: 404}); err != nil {
		t.Fatal(err)
	}
	both(t, 400, "receipt_invalid")
	s.World.Heal()
	if b := u.Balance(t); b != 3 {
		t.Errorf("balance after failures %d, want 3", b)
	}
	// The client may retry with the same transaction.
	var got apitest.Purchased
	purchase(t, u, "platform_a", p.OrderID, p.Token, p.ProductID).Expect(200).JSON(&got)
	purchase(t, u, "platform_b", tr.TransactionID, receipt, tr.ProductID).Expect(200).JSON(&got)
	if got.Granted != 10 || got.Balance != 23 {
		t.Errorf("retry after the outage: %+v", got)
	}
}
