// Purchases at platform_b: asks the store, or its sandbox, about a transaction and checks what the store signed.

package receipt

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	_ "embed" // for the store's root certificate
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"cutroom/internal/base/httpcall"
	"cutroom/internal/upstream/credentials"
)

const (
	platformBAudience = "appstoreconnect-v1"
	// requestLifetime is the validity of a signed request. The store allows an hour; one call needs far less.
	requestLifetime = 10 * time.Minute
	// clockSlack backdates what we sign, in case the store's clock runs behind.
	clockSlack = 10 * time.Second
)

// platformBRoot is the store's published root certificate, under which it signs transactions. It is valid until 2039.
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
	SandboxURL    string           // ask here about transactions that BaseURL does not know, and accept them as tests; "" accepts none
	ExtraRootsPEM []byte           // trusted besides the store's root; may be empty
	HTTP          *http.Client     // nil means http.DefaultClient; redirects are never followed
	Now           func() time.Time // nil means time.Now
}

// PlatformB verifies transactions with platform_b. It is safe for concurrent use.
type PlatformB struct {
	cfg          PlatformBConfig
	environments []string // of transactions that we accept, as the store spells them
	key          *ecdsa.PrivateKey
	roots        []*x509.Certificate
	client       *http.Client
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
	environments := []string{production}
	switch {
	case cfg.Sandbox:
		environments = []string{sandbox}
	case cfg.SandboxURL != "":
		environments = []string{production, sandbox}
	}
	return &PlatformB{cfg, environments, key, roots, httpcall.Private(cfg.HTTP)}, nil
}

// The environments of a transaction, as the store spells them.
const (
	production = "Production"
	sandbox    = "Sandbox"
)

// RootExpiry is when the first of the trusted root certificates expires.
func (p *PlatformB) RootExpiry() time.Time {
	return slices.MinFunc(p.roots, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }).NotAfter
}

// Verify asks the store about the transaction in in.TransactionID. It ignores in.Receipt: only what the store signs now
// is proof. The error is ErrInvalid or ErrUnavailable under errors.Is.
func (p *PlatformB) Verify(ctx context.Context, in Purchase) (sold Sale, err error) {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	t, err := p.lookup(ctx, in.TransactionID)
	if err == nil {
		sold, err = t.check(in)
	}
	if err != nil {
		return Sale{}, fmt.Errorf("platform_b: %w", err)
	}
	sold.Test = t.Environment == sandbox && !p.cfg.Sandbox
	return sold, nil
}

// lookup returns a transaction that the store signed for our app. If tests are accepted, it asks the sandbox about a
// transaction that the production store does not know. That store answers 401 until the app is released.
func (p *PlatformB) lookup(ctx context.Context, transactionID string) (transaction, error) {
	t, refused, err := p.ask(ctx, p.cfg.BaseURL, transactionID, p.environments[0])
	if p.cfg.SandboxURL == "" || err == nil || refused != unknown && refused != refusedUs {
		return t, err
	}
	t, _, err = p.ask(ctx, p.cfg.SandboxURL, transactionID, sandbox)
	if refused == refusedUs && errors.Is(err, ErrInvalid) && ReasonOf(err) == Unverified {
		// Only the store that refused us could confirm it.
		return transaction{}, fmt.Errorf("%w: the production store refuses us; sandbox: %w", ErrUnavailable, errors.New(err.Error()))
	}
	return t, err
}

// denial classifies a store's denial of a transaction, to decide whether to ask another store.
type denial int

const (
	otherwise denial = iota
	unknown          // there is no such transaction
	refusedUs        // the store does not answer us
)

// ask asks the store at an address about a transaction.
func (p *PlatformB) ask(ctx context.Context, address, transactionID, environment string) (transaction, denial, error) {
	id, err := segment("transaction id", transactionID)
	if err != nil {
		return transaction{}, otherwise, err
	}
	bearer, err := p.requestToken()
	if err != nil {
		return transaction{}, otherwise, fmt.Errorf("%w: sign request: %w", ErrUnavailable, err)
	}
	status, body, err := authorizedGet(ctx, p.client, address+transactionsPath+id, bearer)
	if err != nil {
		return transaction{}, otherwise, fmt.Errorf("look up transaction: %w", err)
	}
	if status != http.StatusOK {
		why, err := p.denied(status, body)
		return transaction{}, why, err
	}
	var answer struct {
		SignedTransactionInfo string `json:"signedTransactionInfo"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.SignedTransactionInfo == "" {
		return transaction{}, otherwise, refuse(Unverified, "the answer holds no signed transaction")
	}
	t, err := p.open(answer.SignedTransactionInfo, environment)
	if err == nil && t.TransactionID != transactionID {
		err = refuse(Mismatch, "transaction id is another one")
	}
	return t, otherwise, err
}

const transactionsPath = "/inApps/v1/transactions/"

// The store's error codes that we distinguish. It calls the second to fourth retryable: account, app or transaction may
// be found later.
const (
	codeUnknownTransaction = 4040010
	codeAccountLater       = 4040002
	codeAppLater           = 4040004
	codeTransactionLater   = 4040006
)

// denied classifies an unsuccessful answer.
func (p *PlatformB) denied(status int, body []byte) (denial, error) {
	var answer struct {
		Code int64 `json:"errorCode"`
	}
	_ = json.Unmarshal(body, &answer) // an unreadable body has no code
	err := refuse(Unverified, "look up transaction: status %d", status)
	switch {
	case status == http.StatusUnauthorized:
		return refusedUs, fmt.Errorf("%w: look up transaction: status %d", ErrUnavailable, status)
	case refusesUs(status):
		return otherwise, fmt.Errorf("%w: look up transaction: status %d", ErrUnavailable, status)
	case answer.Code == codeAccountLater, answer.Code == codeAppLater, answer.Code == codeTransactionLater:
		httpcall.CountFailure(p.client)
		return otherwise, fmt.Errorf("%w: look up transaction: status %d, code %d", ErrUnavailable, status, answer.Code)
	case status == http.StatusNotFound && answer.Code == codeUnknownTransaction:
		return unknown, err
	}
	return otherwise, err
}

// open verifies and decodes a transaction that the store signed, from one of the environments.
func (p *PlatformB) open(signed string, environments ...string) (transaction, error) {
	payload, err := verifySigned(signed, p.roots, p.cfg.Now())
	if err != nil {
		return transaction{}, refuse(Unverified, "signed transaction: %w", err)
	}
	var t transaction
	if err := json.Unmarshal(payload, &t); err != nil {
		return transaction{}, refuse(Unverified, "transaction is not readable")
	}
	switch {
	case t.BundleID != p.cfg.BundleID:
		return transaction{}, refuse(Mismatch, "transaction belongs to another app")
	case !slices.Contains(environments, t.Environment):
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
	// RevocationPercentage is the share refunded so far, in thousandths of a percent, present after the refund of a
	// share.
	RevocationPercentage *float64 `json:"revocationPercentage"`
}

// wholeRevocation is the RevocationPercentage of a whole purchase.
const wholeRevocation = 100_000

// refunded returns the share that the store has refunded or revoked so far.
func (t transaction) refunded() Share {
	switch p := t.RevocationPercentage; {
	case t.RevocationDate == nil:
		return Share{}
	case p == nil || *p >= wholeRevocation:
		return All
	default:
		return Share{int64(max(0, *p)), wholeRevocation}
	}
}

// check returns what was sold, or an error that names the broken rule.
func (t transaction) check(in Purchase) (Sale, error) {
	switch {
	case in.ProductID == "" || t.ProductID != in.ProductID:
		return Sale{}, refuse(Mismatch, "transaction is for another product")
	case t.Ownership == "FAMILY_SHARED", t.AppAccountToken != "" && !sameUUID(t.AppAccountToken, in.AccountID):
		return Sale{}, refuse(OtherAccount, "bought by another account")
	case t.Ownership != "PURCHASED":
		return Sale{}, refuse(Unverified, "ownership is %.40q", t.Ownership)
	case t.refunded() == All:
		return Sale{}, refuse(Revoked, "transaction was revoked")
	}
	quantity, err := quantityOf(t.Quantity)
	if err != nil {
		return Sale{}, err
	}
	return Sale{Quantity: quantity, Refunded: t.refunded()}, nil
}

// sameUUID compares two UUIDs in any notation.
func sameUUID(a, b string) bool {
	x, errX := uuid.Parse(a)
	y, errY := uuid.Parse(b)
	return errX == nil && errY == nil && x == y
}
