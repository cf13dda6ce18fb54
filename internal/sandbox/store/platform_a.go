// Package store stands in for the two in-app purchase stores. Each stores the purchases registered with it, issues the
// credentials that a developer would get from the real store, and checks them on every call.
package store

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"cutroom/internal/sandbox/fake"
)

// Steps of platform_a.
const (
	StepToken    = "token"    // POST /token
	StepPurchase = "purchase" // GET …/purchases/products/{product}/tokens/{token}
	StepVoided   = "voided"   // GET …/purchases/voidedpurchases
	StepKeys     = "keys"     // GET /oauth2/v3/certs
)

// The audience and the account of the store's notification pushes.
const (
	PushAudience = "cutroom-sandbox-notifications"
	PushSender   = "push@sandbox-project.iam.gserviceaccount.com"
	pushIssuer   = "https://accounts.google.com"
)

// PurchaseA is platform_a's record of a purchase.
type PurchaseA struct {
	Token     string `json:"token"`   // purchase token, the client's "receipt"
	OrderID   string `json:"orderId"` // the client's transaction id
	ProductID string `json:"productId"`
	// PurchaseState: 0 bought, 1 cancelled, 2 pending.
	PurchaseState int `json:"purchaseState"`
	// AccountID is the obfuscated account id that the app passed, if any.
	AccountID string `json:"accountId,omitempty"`
	// Set adds or replaces fields of the answer; Omit then removes some.
	Set  map[string]any `json:"set,omitempty"`
	Omit []string       `json:"omit,omitempty"`
}

// PlatformA stands in for platform_a: an OAuth2 token endpoint for service accounts and purchases.products.get under
// /androidpublisher/v3.
type PlatformA struct {
	*fake.Host
	packageName string
	account     *fake.ServiceAccount

	mu        sync.Mutex
	purchases map[string]PurchaseA // by purchase token
	voided    []string             // tokens of reversed purchases, in the order of reversal
}

// NewPlatformA returns a store with one app, packageName, and one service account.
func NewPlatformA(packageName string) *PlatformA {
	s := &PlatformA{
		Host: fake.NewHost(nil), packageName: packageName, purchases: map[string]PurchaseA{},
		account: fake.NewServiceAccount("cutroom", "sandbox-project", "https://www.googleapis.com/auth/androidpublisher"),
	}
	s.Handle(StepToken, "POST /token", s.account.IssueToken)
	s.Handle(StepPurchase,
		"GET /androidpublisher/v3/applications/{package}/purchases/products/{product}/tokens/{token}", s.getPurchase)
	s.Handle(StepVoided, "GET /androidpublisher/v3/applications/{package}/purchases/voidedpurchases", s.listVoided)
	s.Handle(StepKeys, "GET /oauth2/v3/certs", s.account.Key.ServeKeys)
	fake.Control(s.Host, "POST", "purchases", "make a purchase known, or change that of a token; answers it with what was blank filled in",
		PurchaseA{Token: "example", ProductID: "credits.10", PurchaseState: 2}, func(_ context.Context, p PurchaseA) (any, error) {
			return s.Register(p), nil
		})
	fake.Control(s.Host, "POST", "refund", "take a purchase back, and push the notification to the address in notify",
		refundA{Token: "example"}, func(ctx context.Context, ask refundA) (any, error) {
			p, err := s.Refund(ask.Token)
			if err != nil || ask.Notify == "" {
				return p, err
			}
			return p, s.Push(p).Send(ctx, ask.Notify)
		})
	return s
}

type refundA struct {
	Token  string `json:"token"`
	Notify string `json:"notify,omitempty"`
}

// Register adds a purchase, or replaces the one with the same token, and returns it as stored. It generates a blank
// Token or OrderID.
func (s *PlatformA) Register(p PurchaseA) PurchaseA {
	if p.Token == "" {
		p.Token = fake.RandomHex(24) + ".AO-J1O" + fake.RandomHex(20)
	}
	if p.OrderID == "" {
		n := randomDigits(17)
		p.OrderID = fmt.Sprintf("GPA.%s-%s-%s-%s", n[:4], n[4:8], n[8:12], n[12:])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.purchases[p.Token] = p
	return p
}

// ServiceAccountJSON returns the credentials file of the service account, on one line. Its token_uri is this
// stand-in's address, so call Listen first.
func (s *PlatformA) ServiceAccountJSON() string { return s.account.JSON(s.URL()) }

// admits refuses a request without a valid token, or about another application.
func (s *PlatformA) admits(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case !s.account.Admits(r):
		refuseA(w, 401, "authError", "Request had invalid authentication credentials.")
	case r.PathValue("package") != s.packageName:
		refuseA(w, 404, "applicationNotFound", "No application was found for the given package name.")
	default:
		return true
	}
	return false
}

func (s *PlatformA) getPurchase(w http.ResponseWriter, r *http.Request) {
	if !s.admits(w, r) {
		return
	}
	s.mu.Lock()
	p, known := s.purchases[r.PathValue("token")]
	s.mu.Unlock()
	switch {
	case !known:
		refuseA(w, 404, "purchaseTokenNotFound", "The purchase token was not found.")
		return
	case p.ProductID != r.PathValue("product"):
		refuseA(w, 400, "purchaseTokenDoesNotMatchProductId", "The purchase token does not match the product ID.")
		return
	}
	answer := map[string]any{
		"kind": "androidpublisher#productPurchase", "purchaseState": p.PurchaseState,
		"purchaseTimeMillis": strconv.FormatInt(time.Now().Add(-time.Minute).UnixMilli(), 10),
		"consumptionState":   0, "acknowledgementState": 0, "developerPayload": "",
		"orderId": p.OrderID, "regionCode": "US",
	}
	if p.AccountID != "" {
		answer["obfuscatedExternalAccountId"] = p.AccountID
	}
	fake.Adjust(answer, p.Set, p.Omit)
	fake.WriteJSON(w, http.StatusOK, answer)
}

func refuseA(w http.ResponseWriter, status int, reason, message string) {
	fake.WriteJSON(w, status, map[string]any{"error": map[string]any{
		"code": status, "message": message,
		"errors": []map[string]string{{"message": message, "domain": "androidpublisher", "reason": reason}},
	}})
}

// randomDigits returns a number of n digits.
func randomDigits(n int) string {
	least := int64(math.Pow10(n - 1))
	return strconv.FormatInt(least+rand.Int64N(9*least), 10)
}
