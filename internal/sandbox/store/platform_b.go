// The stand-in for platform_b's store: its transactions, the certificates and keys that sign them, and the checks of a
// request's token.

package store

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"cutroom/internal/sandbox/fake"
)

// Steps of platform_b. The sandbox that tests of a released app use is under [SandboxPath].
const (
	StepTransaction = "transaction"         // GET /inApps/v1/transactions/{id}
	StepSandbox     = "sandbox_transaction" // GET /sandbox/inApps/v1/transactions/{id}
)

// SandboxPath is the prefix of the sandbox's addresses.
const SandboxPath = "/sandbox"

// TransactionB is platform_b's record of a transaction.
type TransactionB struct {
	TransactionID string `json:"transactionId"`
	ProductID     string `json:"productId"`
	BundleID      string `json:"bundleId,omitempty"` // default: the store's app
	// Environment is "Sandbox" by default. A transaction that states Sandbox explicitly is a tester's: only the address
	// under SandboxPath knows it.
	Environment   string `json:"environment,omitempty"`
	OwnershipType string `json:"ownershipType,omitempty"` // default PURCHASED
	AccountToken  string `json:"accountToken,omitempty"`  // appAccountToken, if the app passed one
	RevokedAtMs   int64  `json:"revokedAtMs,omitempty"`   // revocationDate, epoch ms
	// RefundedShare is revocationPercentage: the share refunded so far, in thousandths of a percent; 0 omits the field,
	// which means all of it.
	RefundedShare int64 `json:"refundedShare,omitempty"`
	Quantity      int64 `json:"quantity,omitempty"` // default 1
	// Forged signs with a chain that ends in another root.
	Forged bool `json:"forged,omitempty"`
}

// PlatformB stands in for platform_b's store API.
type PlatformB struct {
	*fake.Host
	bundleID string
	issuerID string
	keyID    string
	private  *ecdsa.PrivateKey
	good     chain
	forged   chain

	mu           sync.Mutex
	transactions map[string]TransactionB
}

// environment is the environment of transactions that state none.
const environment = "Sandbox"

// NewPlatformB returns a store with one app, bundleID.
func NewPlatformB(bundleID string) *PlatformB {
	s := &PlatformB{
		Host: fake.NewHost(nil), bundleID: bundleID,
		issuerID: "57246542-96fe-1a63-e053-0824d011072a", keyID: strings.ToUpper(fake.RandomHex(5)),
		private: fake.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)), good: newChain(), forged: newChain(),
		transactions: map[string]TransactionB{},
	}
	s.Handle(StepTransaction, "GET /inApps/v1/transactions/{id}", func(w http.ResponseWriter, r *http.Request) {
		s.getTransaction(w, r, func(t TransactionB) bool { return t.Environment != environment })
	})
	s.Handle(StepSandbox, "GET "+SandboxPath+"/inApps/v1/transactions/{id}", func(w http.ResponseWriter, r *http.Request) {
		s.getTransaction(w, r, func(t TransactionB) bool { return t.Environment == environment })
	})
	fake.Control(s.Host, "POST", "transactions",
		"make a transaction known, or change that of an id; answers it with its signed form as receipt",
		TransactionB{TransactionID: "1001", ProductID: "credits.10"}, func(_ context.Context, t TransactionB) (any, error) {
			t = s.Register(t)
			return struct {
				TransactionB
				Receipt string `json:"receipt"`
			}{t, s.Sign(t)}, nil
		})
	fake.Control(s.Host, "POST", "refund",
		"take a transaction, or a share of it, back, or let it stand again (reversed), and push the notification to the address in notify",
		refundB{TransactionID: "1001", Share: 33333}, func(ctx context.Context, ask refundB) (any, error) {
			t, err := s.RefundShare(ask.TransactionID, !ask.Reversed, ask.Share)
			if err != nil || ask.Notify == "" {
				return t, err
			}
			return t, s.Push(t, map[bool]string{true: "REFUND_REVERSED", false: "REFUND"}[ask.Reversed]).Send(ctx, ask.Notify)
		})
	return s
}

type refundB struct {
	TransactionID string `json:"transactionId"`
	Share         int64  `json:"share,omitempty"` // refunded so far, in thousandths of a percent; default: all
	Reversed      bool   `json:"reversed,omitempty"`
	Notify        string `json:"notify,omitempty"`
}

// IssuerID returns the iss of request tokens.
func (s *PlatformB) IssuerID() string { return s.issuerID }

// KeyID returns the id of the API key.
func (s *PlatformB) KeyID() string { return s.keyID }

// PrivateKeyPEM returns the API key (.p8) that a developer would download.
func (s *PlatformB) PrivateKeyPEM() string { return fake.PrivatePEM(s.private) }

// RootPEM returns the root certificate of every valid chain.
func (s *PlatformB) RootPEM() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.good.root.Raw}))
}

// Register adds a transaction, or replaces the one with the same id, and returns it as stored. It generates a blank id.
func (s *PlatformB) Register(t TransactionB) TransactionB {
	if t.TransactionID == "" {
		t.TransactionID = "2" + randomDigits(15)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.transactions[t.TransactionID] = t
	return t
}

// Sign returns the signed form of a transaction, registered or not.
func (s *PlatformB) Sign(t TransactionB) string {
	now := time.Now()
	payload := jwt.MapClaims{
		"transactionId": t.TransactionID, "originalTransactionId": t.TransactionID,
		"bundleId": cmp.Or(t.BundleID, s.bundleID), "productId": t.ProductID,
		"environment": cmp.Or(t.Environment, environment), "inAppOwnershipType": cmp.Or(t.OwnershipType, "PURCHASED"),
		"purchaseDate": now.Add(-time.Minute).UnixMilli(), "originalPurchaseDate": now.Add(-time.Minute).UnixMilli(),
		"signedDate": now.UnixMilli(), "quantity": max(1, t.Quantity), "type": "Consumable",
		"transactionReason": "PURCHASE", "storefront": "USA", "storefrontId": "143441",
	}
	if t.AccountToken != "" {
		payload["appAccountToken"] = t.AccountToken
	}
	if t.RevokedAtMs != 0 {
		payload["revocationDate"], payload["revocationReason"] = t.RevokedAtMs, 0
		if t.RefundedShare != 0 {
			payload["revocationPercentage"], payload["revocationType"] = t.RefundedShare, "REFUND_PRORATED"
		}
	}
	return s.signPayload(payload, t.Forged)
}

// signPayload signs as the store does, or as a forger does.
func (s *PlatformB) signPayload(payload jwt.MapClaims, forged bool) string {
	c := s.good
	if forged {
		c = s.forged
	}
	token := jwt.NewWithClaims(jwt.SigningMethodES256, payload)
	delete(token.Header, "typ")
	token.Header["x5c"] = c.x5c
	return fake.Must(token.SignedString(c.key))
}

// getTransaction answers requests about the transactions that belong to the address.
func (s *PlatformB) getTransaction(w http.ResponseWriter, r *http.Request, belongs func(TransactionB) bool) {
	if err := s.checkRequestToken(r); err != nil {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte("Unauthenticated\n\nRequest ID: SANDBOX." + err.Error() + "\n"))
		return
	}
	id := r.PathValue("id")
	s.mu.Lock()
	t, known := s.transactions[id]
	s.mu.Unlock()
	if !known || !belongs(t) {
		fake.WriteJSON(w, 404, map[string]any{"errorCode": 4040010, "errorMessage": "Transaction id not found."})
		return
	}
	fake.WriteJSON(w, http.StatusOK, map[string]string{"signedTransactionInfo": s.Sign(t)})
}

// checkRequestToken performs the store's checks of a request token, including the app's bundle.
func (s *PlatformB) checkRequestToken(r *http.Request) error {
	raw, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !found {
		return errors.New("no bearer")
	}
	claims, err := fake.CheckToken(raw, "ES256", "appstoreconnect-v1", s.issuerID, s.keyID, &s.private.PublicKey)
	if err == nil && claims["bid"] != s.bundleID {
		err = fmt.Errorf("bid is %v", claims["bid"])
	}
	return err
}
