// Purchases at platform_a: every record that is refused, failures of the store and of its token endpoint, and refunds.

package receipt_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"cutroom/internal/base/httpcall/calltest"
	"cutroom/internal/sandbox/fake"
	"cutroom/internal/sandbox/store"
	"cutroom/internal/upstream/receipt"
)

const (
	purchaseToken = "abcdefghijklmnop.AO-J1Ox/with spaces%2F&more?x=y#z"
	orderID       = "GPA.3333-4444-5555-66666"
	accountEmail  = "verifier@project.example"
)

var accountKey = sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) })

func goodA() receipt.Purchase {
	return receipt.Purchase{TransactionID: orderID, ProductID: product, Receipt: purchaseToken, AccountID: account}
}

var (
	one  = receipt.Sale{Quantity: 1}
	none receipt.Sale
)

// saleA is a valid purchase with changed fields of the store's record; a nil change removes the field.
func saleA(changes map[string]any) store.PurchaseA {
	p := store.PurchaseA{Token: purchaseToken, OrderID: orderID, ProductID: product, AccountID: account, Set: changes}
	for name, value := range changes {
		if value == nil {
			p.Omit = append(p.Omit, name)
		}
	}
	return p
}

func accountJSON(changes map[string]any) []byte {
	fields := map[string]any{
		"type": "service_account", "client_email": accountEmail, "private_key_id": "key-1",
		"private_key": string(pkcs8PEM(accountKey())), "token_uri": "https://tokens.example/token",
	}
	maps.Copy(fields, changes)
	return must(json.Marshal(fields))
}

// newPlatformA returns a verifier, and a store that knows a valid purchase.
func newPlatformA(t *testing.T, change ...func(*receipt.PlatformAConfig)) (*receipt.PlatformA, *store.PlatformA, *calltest.Clock) {
	t.Helper()
	at := calltest.NewClock(start)
	s := store.NewPlatformA("com.cutroom.app")
	client := listen(t, s.Host)
	s.Register(saleA(nil))
	cfg := receipt.PlatformAConfig{BaseURL: s.URL(), PackageName: "com.cutroom.app",
		ServiceAccountJSON: []byte(s.ServiceAccountJSON()), HTTP: client, Now: at.Now}
	for _, c := range change {
		c(&cfg)
	}
	p, err := receipt.NewPlatformA(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p, s, at
}

func TestPlatformAJudgesTheRecord(t *testing.T) {
	for name, test := range map[string]struct {
		changes map[string]any
		want    receipt.Reason
		sold    receipt.Sale
	}{
		"purchased":              {nil, "", one},
		"no account recorded":    {map[string]any{"obfuscatedExternalAccountId": nil}, "", one},
		"product repeated":       {map[string]any{"productId": product}, "", one},
		"order of a promotion":   {map[string]any{"purchaseType": 1}, "", one},
		"three by a tester":      {map[string]any{"quantity": 3, "purchaseType": 0}, "", receipt.Sale{Quantity: 3, Test: true}},
		"two of three refunded":  {map[string]any{"quantity": 3, "refundableQuantity": 1}, "", receipt.Sale{Quantity: 3, Refunded: receipt.Share{Part: 2, Of: 3}}},
		"nothing refunded":       {map[string]any{"quantity": 3, "refundableQuantity": 3}, "", receipt.Sale{Quantity: 3}},
		"refunded, state as is":  {map[string]any{"refundableQuantity": 0}, receipt.Revoked, none},
		"licence tester":         {map[string]any{"purchaseType": 0}, receipt.TestPurchase, none},
		"pending, no order yet":  {map[string]any{"purchaseState": 2, "orderId": nil}, receipt.Pending, none},
		"unknown state":          {map[string]any{"purchaseState": 3}, receipt.Unverified, none},
		"none bought":            {map[string]any{"quantity": 0}, receipt.Unverified, none},
		"absurdly many bought":   {map[string]any{"quantity": 1001}, receipt.Unverified, none},
		"cancelled":              {map[string]any{"purchaseState": 1}, receipt.Cancelled, none},
		"pending":                {map[string]any{"purchaseState": 2}, receipt.Pending, none},
		"state missing":          {map[string]any{"purchaseState": nil}, receipt.Unverified, none},
		"state as text":          {map[string]any{"purchaseState": "0"}, receipt.Unverified, none},
		"other order":            {map[string]any{"orderId": "GPA.1"}, receipt.Mismatch, none},
		"another account":        {map[string]any{"obfuscatedExternalAccountId": "somebody-else"}, receipt.OtherAccount, none},
		"token of other product": {map[string]any{"productId": "credits.10"}, receipt.Mismatch, none},
	} {
		t.Run(name, func(t *testing.T) {
			p, s, _ := newPlatformA(t, func(cfg *receipt.PlatformAConfig) { cfg.AllowTest = test.sold.Test })
			s.Register(saleA(test.changes))
			sold, err := p.Verify(t.Context(), goodA())
			judged(t, sold, err, test.sold, test.want, purchaseToken)
		})
	}
}

func TestPlatformATellsAWrongProductFromAWrongToken(t *testing.T) {
	p, s, _ := newPlatformA(t)
	refused := func(status int, reason string) fake.Rule {
		return fake.Rule{Kind: fake.KindStatus, Status: status,
			Body: fmt.Sprintf(`{"error":{"code":400,"message":%q,"errors":[{"reason":%q}]}}`, purchaseToken, reason)}
	}
	for _, c := range []struct {
		rule fake.Rule
		want receipt.Reason
	}{
		{refused(400, "purchaseTokenDoesNotMatchProductId"), receipt.Mismatch},
		{refused(400, "purchaseTokenDoesNotMatchPackageName"), receipt.Mismatch},
		{refused(403, "purchaseTokenDoesNotMatchPackageName"), receipt.Mismatch},
		{refused(400, "invalid"), receipt.Unverified},
		{refused(400, ""), receipt.Unverified},
		{refused(200, "an error in place of the record"), receipt.Unverified},
		{answering("null"), receipt.Unverified},
	} {
		fail(t, s.Host, store.StepPurchase, c.rule)
		sold, err := p.Verify(t.Context(), goodA())
		judged(t, sold, err, none, c.want, purchaseToken)
	}
}

func TestPlatformAClassifiesFailures(t *testing.T) {
	t.Parallel()
	for name, failure := range failures {
		for _, step := range []string{store.StepPurchase, store.StepToken} {
			t.Run(step+" "+name, func(t *testing.T) {
				want := failure.want
				if step == store.StepToken && name != "400" {
					want = receipt.ErrUnavailable // without a token nothing is known about the purchase
				}
				p, s, _ := newPlatformA(t, func(cfg *receipt.PlatformAConfig) { cfg.HTTP.Timeout = failure.timeout })
				fail(t, s.Host, step, failure.rule)
				err := verdict(p.Verify(t.Context(), goodA()))
				wantOnly(t, err, want, purchaseToken, "AO-J1Ox", "ya29.", "assertion=", fake.LeakMarker)
				if ours := step == store.StepToken && name == "400"; errors.Is(err, receipt.ErrCredentials) != ours {
					t.Errorf("a fault of our credentials: %t, want %t", !ours, ours)
				}
				if s.Faults.Count(fake.StepUnknown) != 0 {
					t.Error("a redirect was followed")
				}
				if step == store.StepToken && s.Faults.Count(store.StepPurchase) != 0 {
					t.Error("the API was called without an access token")
				}
				s.Faults.Clear()
				if failure.timeout > 0 {
					return // a busy machine may be as slow
				}
				if err := verdict(p.Verify(t.Context(), goodA())); err != nil {
					t.Errorf("after recovery: %v", err)
				}
			})
		}
	}
}

func TestPlatformACallerGivesUp(t *testing.T) {
	p, s, _ := newPlatformA(t)
	fail(t, s.Host, store.StepToken, fake.Rule{Kind: fake.KindStall})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := verdict(p.Verify(ctx, goodA()))
	wantOnly(t, err, receipt.ErrUnavailable, purchaseToken)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the cause is lost: %v", err)
	}
	s.Faults.Clear()
}

func TestPlatformAKeepsItsAccessTokenUntilShortlyBeforeItsEnd(t *testing.T) {
	p, s, at := newPlatformA(t)
	for _, step := range []struct {
		wait   time.Duration
		grants int
	}{{0, 1}, {30 * time.Minute, 1}, {29*time.Minute - time.Second, 1}, {time.Second, 2}, {0, 2}} {
		at.Advance(step.wait)
		if err := verdict(p.Verify(t.Context(), goodA())); err != nil {
			t.Fatal(err)
		}
		if grants := s.Faults.Count(store.StepToken); grants != step.grants {
			t.Errorf("%s: %d grants, want %d", at.Now().Sub(start), grants, step.grants)
		}
	}
}

func TestPlatformADoesNotKeepATokenOfUnknownLife(t *testing.T) {
	p, s, _ := newPlatformA(t)
	fail(t, s.Host, store.StepToken, answering(`{"access_token":"brief","expires_in":0}`))
	if err := s.Faults.Add(fake.Rule{Step: store.StepPurchase, Kind: fake.KindStatus, Status: 404}); err != nil {
		t.Fatal(err)
	}
	for want := 1; want <= 2; want++ {
		wantOnly(t, verdict(p.Verify(t.Context(), goodA())), receipt.ErrInvalid)
		if grants := s.Faults.Count(store.StepToken); grants != want {
			t.Errorf("%d grants, want %d", grants, want)
		}
	}
}

func TestPlatformARetriesOnceWithAFreshTokenWhenRefused(t *testing.T) {
	p, s, _ := newPlatformA(t)
	fail(t, s.Host, store.StepToken, fake.Rule{Kind: fake.KindGarbage, Times: 1, Body: `{"access_token":"revoked","expires_in":3600}`})
	if err := verdict(p.Verify(t.Context(), goodA())); err != nil {
		t.Error(err)
	}
	if grants, lookups := s.Faults.Count(store.StepToken), s.Faults.Count(store.StepPurchase); grants != 2 || lookups != 2 {
		t.Errorf("%d grants and %d calls, want 2 and 2", grants, lookups)
	}
	fail(t, s.Host, store.StepPurchase, status(401))
	wantOnly(t, verdict(p.Verify(t.Context(), goodA())), receipt.ErrUnavailable, purchaseToken)
	if lookups := s.Faults.Count(store.StepPurchase); lookups != 4 {
		t.Errorf("%d calls, want 4: one retry only", lookups)
	}
}

func TestPlatformAConcurrentCallersShareOneGrant(t *testing.T) {
	p, s, _ := newPlatformA(t)
	var callers sync.WaitGroup
	for range 12 {
		callers.Go(func() {
			if err := verdict(p.Verify(t.Context(), goodA())); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	if grants := s.Faults.Count(store.StepToken); grants != 1 {
		t.Errorf("%d grants, want 1", grants)
	}
}

func TestPlatformARefusesPartsThatNameNothing(t *testing.T) {
	p, s, _ := newPlatformA(t)
	for _, in := range []receipt.Purchase{
		{ProductID: product, Receipt: ""}, {ProductID: product, Receipt: ".."}, {ProductID: product, Receipt: strings.Repeat("x", 4<<10+1)},
		{ProductID: "", Receipt: purchaseToken}, {ProductID: ".", Receipt: purchaseToken},
	} {
		in.TransactionID = orderID
		wantOnly(t, verdict(p.Verify(t.Context(), in)), receipt.ErrInvalid)
	}
	if s.Faults.Count(fake.AnyStep) != 0 {
		t.Error("the store was asked")
	}
}

func TestPlatformANeedsATransactionID(t *testing.T) {
	p, s, _ := newPlatformA(t)
	s.Register(saleA(map[string]any{"orderId": ""}))
	in := goodA()
	in.TransactionID = ""
	wantOnly(t, verdict(p.Verify(t.Context(), in)), receipt.ErrInvalid)
}

// A purchase by a promotion code has no order: its id is the purchase token.
func TestPlatformAKnowsAPurchaseWithoutAnOrderByItsToken(t *testing.T) {
	p, s, _ := newPlatformA(t)
	s.Register(saleA(map[string]any{"orderId": nil, "purchaseType": 1}))
	in := goodA()
	_, err := p.Verify(t.Context(), in)
	judged(t, none, err, none, receipt.Mismatch)
	in.TransactionID = purchaseToken
	sold, err := p.Verify(t.Context(), in)
	judged(t, sold, err, one, "")
	s.Register(saleA(nil)) // has an order
	_, err = p.Verify(t.Context(), in)
	judged(t, none, err, none, receipt.Mismatch)
	s.Register(saleA(map[string]any{"orderId": nil, "purchaseState": 1}))
	refunds, err := p.Refunds(t.Context(), []receipt.Transaction{{ID: purchaseToken, ProductID: product, Token: purchaseToken}})
	if err != nil || len(refunds) != 1 || refunds[purchaseToken] != receipt.All {
		t.Errorf("%v, %v", refunds, err)
	}
}

// A purchase is looked up by its token. Without it, all pages of the store's list of reversed purchases are read.
func TestPlatformAReadsWhatWasTakenBack(t *testing.T) {
	t.Parallel()
	p, s, _ := newPlatformA(t)
	if _, err := s.Refund(purchaseToken); err != nil {
		t.Fatal(err)
	}
	reversed, err := p.Refunds(t.Context(), []receipt.Transaction{{ID: orderID, ProductID: product, Token: purchaseToken}})
	if err != nil || len(reversed) != 1 || reversed[orderID] != receipt.All || s.Faults.Count(store.StepVoided) != 0 {
		t.Errorf("by its token: %v, %v, %d pages of the list", reversed, err, s.Faults.Count(store.StepVoided))
	}
	for _, order := range []string{"one", "two"} {
		if _, err := s.Refund(s.Register(store.PurchaseA{OrderID: order}).Token); err != nil {
			t.Fatal(err)
		}
	}
	reversed, err = p.Refunds(t.Context(), []receipt.Transaction{{ID: "two"}, {ID: "of nothing"}})
	if err != nil || len(reversed) != 3 || reversed["two"] != receipt.All || reversed["one"] != receipt.All || s.Faults.Count(store.StepVoided) != 2 {
		t.Errorf("%v, %v, %d pages", reversed, err, s.Faults.Count(store.StepVoided))
	}
	// A cancel that its token does not confirm needs no list. A list that is too long is an error, with what was read.
	pages := s.Faults.Count(store.StepVoided)
	s.Register(saleA(nil))
	reversed, err = p.Refunds(t.Context(), []receipt.Transaction{{ProductID: product, Token: purchaseToken}})
	if err != nil || len(reversed) != 0 || s.Faults.Count(store.StepVoided) != pages {
		t.Errorf("a cancel that is not confirmed: %v, %v, %d pages", reversed, err, s.Faults.Count(store.StepVoided)-pages)
	}
	fail(t, s.Host, store.StepVoided, answering(`{"voidedPurchases":[{"orderId":"read"}],"tokenPagination":{"nextPageToken":"more"}}`))
	reversed, err = p.Refunds(t.Context(), []receipt.Transaction{{ID: "two"}})
	if err == nil || receipt.Unconfirmed(err) || reversed["read"] != receipt.All || s.Faults.Count(store.StepVoided)-pages != 20 {
		t.Errorf("a list without an end: %v, %v, %d pages", reversed, err, s.Faults.Count(store.StepVoided)-pages)
	}
	for name, failure := range failures {
		if name == "empty object" { // no purchase was reversed
			continue
		}
		fail(t, s.Host, store.StepVoided, failure.rule)
		ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(failure.timeout, time.Minute))
		if reversed, err := p.Refunds(ctx, []receipt.Transaction{{ID: "x"}}); err == nil || len(reversed) != 0 {
			t.Errorf("%s: %v, %v", name, reversed, err)
		}
		cancel()
	}
}
