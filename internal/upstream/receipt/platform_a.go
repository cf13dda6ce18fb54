package receipt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"cutroom/internal/httpcall"
	"cutroom/internal/upstream/credentials"
)

// platformAScope is the access that our service account requests.
const platformAScope = "https://www.googleapis.com/auth/androidpublisher"

// PlatformAConfig names the app whose purchases are verified, and our account at the store.
type PlatformAConfig struct {
	BaseURL            string // API, without a trailing slash
	PackageName        string // the app's package
	ServiceAccountJSON []byte // key file of a service account, as downloaded
	AllowTest          bool   // accept purchases of licence testers
	// Sender checks the bearer token of a push: it returns nil if the store issued it, else
	// ErrForged or ErrUnavailable. If Sender is nil, Notification returns ErrNotHeeded.
	Sender func(ctx context.Context, bearer string) error
	HTTP   *http.Client     // nil means http.DefaultClient; redirects are never followed
	Now    func() time.Time // nil means time.Now
}

// PlatformA verifies purchase tokens with platform_a. It is safe for
// concurrent use.
type PlatformA struct {
	cfg          PlatformAConfig
	purchasesURL string // up to and including "purchases/"
	client       *http.Client
	access       *credentials.AccessTokens
}

// NewPlatformA parses the service account's key file. It makes no request.
func NewPlatformA(cfg PlatformAConfig) (*PlatformA, error) {
	account, err := credentials.ParseServiceAccount(cfg.ServiceAccountJSON)
	if err != nil {
		return nil, fmt.Errorf("platform_a: service account: %w", err)
	}
	return &PlatformA{
		cfg:          cfg,
		purchasesURL: cfg.BaseURL + "/androidpublisher/v3/applications/" + url.PathEscape(cfg.PackageName) + "/purchases/",
		client:       httpcall.Private(cfg.HTTP),
		access:       credentials.NewAccessTokens(account, platformAScope, cfg.HTTP, cfg.Now),
	}, nil
}

// Verify asks the store about the purchase token in in.Receipt and returns the quantity bought (>=
// 1). The error is ErrInvalid or ErrUnavailable under errors.Is.
func (p *PlatformA) Verify(ctx context.Context, in Purchase) (quantity int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	record, err := p.lookup(ctx, in.ProductID, in.Receipt)
	if err == nil {
		quantity, err = record.check(in, p.cfg.AllowTest)
	}
	if err != nil {
		return 0, fmt.Errorf("platform_a: %w", err)
	}
	return quantity, nil
}

// lookup returns the store's record of a purchase.
func (p *PlatformA) lookup(ctx context.Context, productID, token string) (productPurchase, error) {
	product, err := segment("product id", productID)
	if err != nil {
		return productPurchase{}, err
	}
	purchaseToken, err := segment("purchase token", token)
	if err != nil {
		return productPurchase{}, err
	}
	status, body, err := p.get(ctx, p.purchasesURL+"products/"+product+"/tokens/"+purchaseToken)
	switch {
	case err != nil:
		return productPurchase{}, fmt.Errorf("look up purchase: %w", err)
	case strings.HasPrefix(reasonOf(body), ofAnother):
		return productPurchase{}, refuse(Mismatch, "the token belongs to another product or app")
	case status != http.StatusOK:
		return productPurchase{}, refuse(Unverified, "look up purchase: status %d", status)
	}
	var record productPurchase
	if err := json.Unmarshal(body, &record); err != nil {
		// The decoder's error may quote the purchase token.
		return productPurchase{}, refuse(Unverified, "the store's record is not readable")
	}
	return record, nil
}

// get calls the store's API as our service account.
func (p *PlatformA) get(ctx context.Context, address string) (status int, body []byte, err error) {
	access, err := p.accessToken(ctx)
	if err != nil {
		return 0, nil, err
	}
	status, body, err = authorizedGet(ctx, p.client, address, access)
	if err == nil && status == http.StatusUnauthorized {
		// An access token can be revoked early. A fresh one shows whether the store refused the token or our
		// permissions.
		p.access.Discard(access)
		if access, err = p.accessToken(ctx); err != nil {
			return 0, nil, err
		}
		status, body, err = authorizedGet(ctx, p.client, address, access)
	}
	return status, body, err
}

// accessToken returns an access token. The error is ErrInvalid if the token endpoint refuses us and
// ErrUnavailable if it gives no usable answer.
func (p *PlatformA) accessToken(ctx context.Context) (string, error) {
	access, err := p.access.Get(ctx)
	if failed, ok := errors.AsType[*credentials.TokenError](err); ok {
		outcome := ErrInvalid
		if failed.Temporary {
			outcome = ErrUnavailable
		}
		return "", fmt.Errorf("%w: %w", outcome, err)
	}
	return access, err
}

// ofAnother is the prefix of the store's reasons for refusing a valid purchase token of another product or app.
const ofAnother = "purchaseTokenDoesNotMatch"

// The values of the fields of productPurchase.
const (
	statePurchased = 0
	stateCancelled = 1
	statePending   = 2
	// typeTest is a licence tester's purchase. A regular one has no type.
	typeTest = 0
)

// productPurchase holds the fields of the store's record that we read.
type productPurchase struct {
	// PurchaseState is 0 purchased, 1 cancelled, 2 pending. The store includes zeros, so
	// a missing state is not a purchase. (It documents purchaseType as present only where
	// it applies, and 0 is one of its values.)
	PurchaseState *int64 `json:"purchaseState"`
	PurchaseType  *int64 `json:"purchaseType"`
	Quantity      *int64 `json:"quantity"`
	OrderID       string `json:"orderId"`
	// ProductID is documented as "may not be present".
	ProductID string `json:"productId"`
	// ObfuscatedAccountID is present if the app named an account at the purchase.
	ObfuscatedAccountID string `json:"obfuscatedExternalAccountId"`
}

// check returns the quantity bought, or an error that names the broken rule.
func (r productPurchase) check(in Purchase, allowTest bool) (quantity int64, err error) {
	switch {
	case r.PurchaseState == nil:
		return 0, refuse(Unverified, "no purchase state")
	case r.ObfuscatedAccountID != "" && r.ObfuscatedAccountID != in.AccountID:
		return 0, refuse(OtherAccount, "bought by another account")
	case r.ProductID != "" && r.ProductID != in.ProductID:
		return 0, refuse(Mismatch, "the token belongs to another product")
	case *r.PurchaseState == statePending: // and has no order id yet
		return 0, refuse(Pending, "not paid yet")
	case in.TransactionID == "" || r.OrderID != in.TransactionID:
		return 0, refuse(Mismatch, "order id is another one")
	case *r.PurchaseState == stateCancelled:
		return 0, refuse(Cancelled, "purchase was cancelled")
	case *r.PurchaseState != statePurchased:
		return 0, refuse(Unverified, "purchase state %d", *r.PurchaseState)
	case r.PurchaseType != nil && *r.PurchaseType == typeTest && !allowTest:
		return 0, refuse(TestPurchase, "bought by a licence tester")
	}
	return quantityOf(r.Quantity)
}
