package receipt

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	_ "embed" // for the store's root certificate
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"cutroom/internal/httpcall"
	"cutroom/internal/upstream/credentials"
)

const (
	platformBAudience = "appstoreconnect-v1"
	// requestLifetime is the validity of a signed request. The store allows an hour; one call needs
	// far less.
	requestLifetime = 10 * time.Minute
	// clockSlack backdates what we sign, in case the store's clock runs behind.
	clockSlack = 10 * time.Second
)

// platformBRoot is the store's published root certificate, under which it signs
// transactions. It is valid until 2039.
//
//go:embed platform_b_root.pem
var platformBRoot []byte

// PlatformBConfig names the app whose purchases are verified, and our key at the store.
type PlatformBConfig struct {
	BaseURL       string           // API, without a trailing slash
	IssuerID      string           // issuer of our signed requests
	KeyID         string           // the id of PrivateKeyPEM
	PrivateKeyPEM []byte           // P-256 key, PKCS #8 or SEC 1, with real line breaks
	BundleID      string           // the app's bundle
	Sandbox       bool             // accept sandbox purchases instead of production ones
	ExtraRootsPEM []byte           // trusted besides the store's root; may be empty
	HTTP          *http.Client     // nil means http.DefaultClient; redirects are never followed
	Now           func() time.Time // nil means time.Now
}

// PlatformB verifies transactions with platform_b. It is safe for concurrent
// use.
type PlatformB struct {
	cfg             PlatformBConfig
	transactionsURL string // up to and including "transactions/"
	key             *ecdsa.PrivateKey
	roots           []*x509.Certificate
	client          *http.Client
}

// NewPlatformB parses key and certificates. It makes no request.
func NewPlatformB(cfg PlatformBConfig) (*PlatformB, error) {
	key, err := credentials.ParseP256(cfg.PrivateKeyPEM)
	if err != nil {
		return nil, fmt.Errorf("platform_b: private key: %w", err)
	}
	roots, err := credentials.ParseCertificates(slices.Concat(platformBRoot, cfg.ExtraRootsPEM))
	if err != nil {
		return nil, fmt.Errorf("platform_b: trusted roots: %w", err)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &PlatformB{cfg, cfg.BaseURL + "/inApps/v1/transactions/", key, roots, httpcall.Private(cfg.HTTP)}, nil
}

// RootExpiry is when the first of the trusted root certificates expires.
func (p *PlatformB) RootExpiry() time.Time {
	return slices.MinFunc(p.roots, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }).NotAfter
}

// Verify asks the store about the transaction in in.TransactionID and returns the quantity bought
// (>= 1). It ignores in.Receipt: only what the store signs now is proof. The error is ErrInvalid or
// ErrUnavailable under errors.Is.
func (p *PlatformB) Verify(ctx context.Context, in Purchase) (quantity int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	t, err := p.lookup(ctx, in.TransactionID)
	if err == nil {
		quantity, err = t.check(in)
	}
	if err != nil {
		return 0, fmt.Errorf("platform_b: %w", err)
	}
	return quantity, nil
}

// lookup returns a transaction that the store signed for our app and environment.
func (p *PlatformB) lookup(ctx context.Context, transactionID string) (transaction, error) {
	id, err := segment("transaction id", transactionID)
	if err != nil {
		return transaction{}, err
	}
	bearer, err := p.requestToken()
	if err != nil {
		return transaction{}, fmt.Errorf("%w: sign request: %w", ErrInvalid, err)
	}
	status, body, err := authorizedGet(ctx, p.client, p.transactionsURL+id, bearer)
	if err != nil {
		return transaction{}, fmt.Errorf("look up transaction: %w", err)
	}
	if status != http.StatusOK {
		return transaction{}, refuse(Unverified, "look up transaction: status %d", status)
	}
	var answer struct {
		SignedTransactionInfo string `json:"signedTransactionInfo"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.SignedTransactionInfo == "" {
		return transaction{}, refuse(Unverified, "the answer holds no signed transaction")
	}
	t, err := p.open(answer.SignedTransactionInfo)
	if err == nil && t.TransactionID != transactionID {
		err = refuse(Mismatch, "transaction id is another one")
	}
	return t, err
}

// open verifies and decodes a transaction that the store signed.
func (p *PlatformB) open(signed string) (transaction, error) {
	payload, err := verifySigned(signed, p.roots, p.cfg.Now())
	if err != nil {
		return transaction{}, refuse(Unverified, "signed transaction: %w", err)
	}
	var t transaction
	if err := json.Unmarshal(payload, &t); err != nil {
		return transaction{}, refuse(Unverified, "transaction is not readable")
	}
	environment := "Production" // as the store spells it
	if p.cfg.Sandbox {
		environment = "Sandbox"
	}
	switch {
	case t.BundleID != p.cfg.BundleID:
		return transaction{}, refuse(Mismatch, "transaction belongs to another app")
	case t.Environment != environment:
		return transaction{}, refuse(Mismatch, "transaction comes from the environment %.40q", t.Environment)
	}
	return t, nil
}

// requestToken signs a token for one request to the store's API.
func (p *PlatformB) requestToken() (string, error) {
	now := p.cfg.Now()
	token := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
		"iss": p.cfg.IssuerID, "aud": platformBAudience, "bid": p.cfg.BundleID,
		"iat": now.Add(-clockSlack).Unix(),
		"exp": now.Add(requestLifetime).Unix(),
	})
	token.Header["kid"] = p.cfg.KeyID
	return token.SignedString(p.key)
}

// transaction holds the fields of a signed transaction that we read.
type transaction struct {
	TransactionID   string `json:"transactionId"`
	BundleID        string `json:"bundleId"`
	ProductID       string `json:"productId"`
	Environment     string `json:"environment"`
	Quantity        *int64 `json:"quantity"`
	Ownership       string `json:"inAppOwnershipType"`
	RevocationDate  any    `json:"revocationDate"`
	AppAccountToken string `json:"appAccountToken"` // UUID that the app named at the purchase, if any
}

// revoked reports whether the store refunded or revoked the transaction.
func (t transaction) revoked() bool { return t.RevocationDate != nil }

// check returns the quantity bought, or an error that names the broken rule.
func (t transaction) check(in Purchase) (quantity int64, err error) {
	switch {
	case in.ProductID == "" || t.ProductID != in.ProductID:
		return 0, refuse(Mismatch, "transaction is for another product")
	case t.Ownership == "FAMILY_SHARED", t.AppAccountToken != "" && !sameUUID(t.AppAccountToken, in.AccountID):
		return 0, refuse(OtherAccount, "bought by another account")
	case t.Ownership != "PURCHASED":
		return 0, refuse(Unverified, "ownership is %.40q", t.Ownership)
	case t.revoked():
		return 0, refuse(Revoked, "transaction was revoked")
	}
	return quantityOf(t.Quantity)
}

// sameUUID compares two UUIDs in any notation.
func sameUUID(a, b string) bool {
	x, errX := uuid.Parse(a)
	y, errY := uuid.Parse(b)
	return errX == nil && errY == nil && x == y
}
