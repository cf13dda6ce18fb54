package store

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
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

// StepTransaction is platform_b's only step: GET /inApps/v1/transactions/{id}.
const StepTransaction = "transaction"

// The two environments a platform_b transaction can come from.
const (
	EnvironmentSandbox    = "Sandbox"
	EnvironmentProduction = "Production"
)

// TransactionB is a transaction as platform_b knows it.
type TransactionB struct {
	TransactionID string `json:"transactionId"`
	ProductID     string `json:"productId"`
	BundleID      string `json:"bundleId,omitempty"`      // default: the store's app
	Environment   string `json:"environment,omitempty"`   // default: the store's own
	OwnershipType string `json:"ownershipType,omitempty"` // default PURCHASED
	AccountToken  string `json:"accountToken,omitempty"`  // appAccountToken, if the app passed one
	RevokedAtMs   int64  `json:"revokedAtMs,omitempty"`   // revocationDate, epoch ms
	// Set adds or replaces fields of the signed payload, Omit then removes some.
	Set   map[string]any `json:"set,omitempty"`
	Omit  []string       `json:"omit,omitempty"`
	Chain Chain          `json:"chain,omitempty"`
}

// PlatformB stands in for platform_b's store API.
type PlatformB struct {
	*fake.Host
	bundleID    string
	environment string
	issuerID    string
	keyID       string
	private     *ecdsa.PrivateKey
	certs       *authority

	mu           sync.Mutex
	transactions map[string]TransactionB
}

// NewPlatformB makes a store that knows one app, bundleID, and signs
// transactions of environment (EnvironmentSandbox or EnvironmentProduction).
func NewPlatformB(bundleID, environment string) (*PlatformB, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate API key: %w", err)
	}
	certs, err := newAuthority()
	if err != nil {
		return nil, err
	}
	s := &PlatformB{
		Host: fake.NewHost(nil), bundleID: bundleID, environment: environment,
		issuerID: "57246542-96fe-1a63-e053-0824d011072a", keyID: strings.ToUpper(fake.RandomHex(5)),
		private: private, certs: certs, transactions: map[string]TransactionB{},
	}
	s.Handle(StepTransaction, "GET /inApps/v1/transactions/{id}", s.getTransaction)
	s.HandleControl("POST", "transactions", "make a transaction known, or change that of an id; answers it with its signed form as receipt",
		TransactionB{TransactionID: "1001", ProductID: "credits.10"}, func(r *http.Request) (any, error) {
			var t TransactionB
			if err := fake.ReadJSON(r, &t); err != nil {
				return nil, err
			}
			t = s.Register(t)
			receipt, err := s.Sign(t)
			return struct {
				TransactionB
				Receipt string `json:"receipt"`
			}{t, receipt}, err
		})
	s.HandleControl("POST", "refund", "take a transaction back, or let it stand again (reversed), and push the notification to the address in notify",
		refundB{TransactionID: "1001"}, func(r *http.Request) (any, error) {
			var ask refundB
			if err := fake.ReadJSON(r, &ask); err != nil {
				return nil, err
			}
			t, err := s.Refund(ask.TransactionID, !ask.Reversed)
			if err != nil || ask.Notify == "" {
				return t, err
			}
			push, err := s.Push(t, map[bool]string{true: "REFUND_REVERSED", false: "REFUND"}[ask.Reversed])
			if err != nil {
				return nil, err
			}
			return t, push.Send(r.Context(), ask.Notify)
		})
	return s, nil
}

type refundB struct {
	TransactionID string `json:"transactionId"`
	Reversed      bool   `json:"reversed,omitempty"`
	Notify        string `json:"notify,omitempty"`
}

// IssuerID and KeyID are what request tokens carry as iss and kid.
func (s *PlatformB) IssuerID() string { return s.issuerID }

// KeyID is the id of the API key.
func (s *PlatformB) KeyID() string { return s.keyID }

// PrivateKeyPEM is the API key (.p8) a developer would download.
func (s *PlatformB) PrivateKeyPEM() (string, error) {
	der, err := x509.MarshalPKCS8PrivateKey(s.private)
	if err != nil {
		return "", fmt.Errorf("encode API key: %w", err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), nil
}

// RootPEM is the certificate every good chain ends at.
func (s *PlatformB) RootPEM() string { return s.certs.root.pem() }

// Register makes a transaction known and returns it as stored; a blank id is
// made up. Registering an id again replaces it.
func (s *PlatformB) Register(t TransactionB) TransactionB {
	if t.TransactionID == "" {
		t.TransactionID = "2" + randomDigits(15)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.transactions[t.TransactionID] = t
	return t
}

// Sign is the signed form of a transaction, registered or not.
func (s *PlatformB) Sign(t TransactionB) (string, error) {
	now := time.Now()
	payload := jwt.MapClaims{
		"transactionId": t.TransactionID, "originalTransactionId": t.TransactionID,
		"bundleId": or(t.BundleID, s.bundleID), "productId": t.ProductID,
		"environment": or(t.Environment, s.environment), "inAppOwnershipType": or(t.OwnershipType, "PURCHASED"),
		"purchaseDate": now.Add(-time.Minute).UnixMilli(), "originalPurchaseDate": now.Add(-time.Minute).UnixMilli(),
		"signedDate": now.UnixMilli(), "quantity": 1, "type": "Consumable",
		"transactionReason": "PURCHASE", "storefront": "USA", "storefrontId": "143441",
	}
	if t.AccountToken != "" {
		payload["appAccountToken"] = t.AccountToken
	}
	if t.RevokedAtMs != 0 {
		payload["revocationDate"], payload["revocationReason"] = t.RevokedAtMs, 0
	}
	adjust(payload, t.Set, t.Omit)
	return s.signPayload(payload, t.Chain)
}

// signPayload signs as the store does, or wrongly, as chain says.
func (s *PlatformB) signPayload(payload jwt.MapClaims, chain Chain) (string, error) {
	x5c, private, err := s.certs.pick(chain)
	if err != nil {
		return "", err
	}
	var method jwt.SigningMethod = jwt.SigningMethodES256
	var key any = private
	switch chain {
	case ChainAlgNone:
		method, key = jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType
	case ChainAlgHMAC:
		public, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
		if err != nil {
			return "", fmt.Errorf("encode leaf key: %w", err)
		}
		method, key = jwt.SigningMethodHS256, public
	}
	token := jwt.NewWithClaims(method, payload)
	delete(token.Header, "typ")
	token.Header["x5c"] = x5c
	switch chain {
	case ChainMissing:
		delete(token.Header, "x5c")
	case ChainEmpty:
		token.Header["x5c"] = []string{}
	case ChainGarbage:
		token.Header["x5c"] = []string{"bm90IGEgY2VydA==", "!!!", ""}
	}
	signed, err := token.SignedString(key)
	if err != nil {
		return "", fmt.Errorf("sign: %w", err)
	}
	if chain == ChainTampered {
		return tamper(signed, payload)
	}
	return signed, nil
}

// tamper swaps the payload for a dearer product and keeps the signature.
func tamper(signed string, payload jwt.MapClaims) (string, error) {
	parts := strings.Split(signed, ".")
	payload["quantity"] = 1000
	changed, err := json.Marshal(payload)
	if err != nil {
		return "", fmt.Errorf("encode tampered payload: %w", err)
	}
	return parts[0] + "." + base64.RawURLEncoding.EncodeToString(changed) + "." + parts[2], nil
}

func or(v, fallback string) string {
	if v == "" {
		return fallback
	}
	return v
}

func (s *PlatformB) getTransaction(w http.ResponseWriter, r *http.Request) {
	if err := s.checkRequestToken(r); err != nil {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte("Unauthenticated\n\nRequest ID: SANDBOX." + err.Error() + "\n"))
		return
	}
	id := r.PathValue("id")
	if strings.TrimSpace(id) == "" || len(id) > 64 {
		fake.WriteJSON(w, 400, map[string]any{"errorCode": 4000006, "errorMessage": "Invalid transaction id."})
		return
	}
	s.mu.Lock()
	t, known := s.transactions[id]
	s.mu.Unlock()
	if !known {
		fake.WriteJSON(w, 404, map[string]any{"errorCode": 4040010, "errorMessage": "Transaction id not found."})
		return
	}
	signed, err := s.Sign(t)
	if err != nil {
		fake.WriteJSON(w, 500, map[string]any{"errorCode": 5000000, "errorMessage": err.Error()})
		return
	}
	fake.WriteJSON(w, http.StatusOK, map[string]string{"signedTransactionInfo": signed})
}

// checkRequestToken checks what the store asks of a request token: ES256 by
// the API key, named kid and issuer, fixed audience, the app's bundle, and a
// life of at most an hour.
func (s *PlatformB) checkRequestToken(r *http.Request) error {
	raw, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !found {
		return errors.New("no bearer")
	}
	claims := jwt.MapClaims{}
	_, err := jwt.NewParser(
		jwt.WithValidMethods([]string{"ES256"}), jwt.WithExpirationRequired(), jwt.WithIssuedAt(),
		jwt.WithAudience("appstoreconnect-v1"), jwt.WithIssuer(s.issuerID), jwt.WithLeeway(5*time.Second),
	).ParseWithClaims(raw, claims, func(t *jwt.Token) (any, error) {
		if t.Header["kid"] != s.keyID {
			return nil, fmt.Errorf("unknown key %v", t.Header["kid"])
		}
		return &s.private.PublicKey, nil
	})
	if err != nil {
		return err
	}
	if claims["bid"] != s.bundleID {
		return fmt.Errorf("bid is %v", claims["bid"])
	}
	issued, err := claims.GetIssuedAt()
	if err != nil || issued == nil {
		return errors.New("no iat")
	}
	if expires, err := claims.GetExpirationTime(); err != nil || expires.Sub(issued.Time) > time.Hour {
		return errors.New("lives longer than an hour")
	}
	return nil
}
