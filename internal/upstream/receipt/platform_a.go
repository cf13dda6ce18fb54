// Purchases at platform_a: asks the store about a purchase token and checks the record that it returns.

package receipt

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"cutroom/internal/base/httpcall"
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
	// Sender checks the bearer token of a push: it returns nil if the store issued it, else ErrForged or
	// ErrUnavailable. If Sender is nil, Notification returns ErrNotConfigured.
	Sender func(ctx context.Context, bearer string) error
	HTTP   *http.Client     // nil means http.DefaultClient; redirects are never followed
	Now    func() time.Time // nil means time.Now
}

// PlatformA verifies purchase tokens with platform_a. It is safe for concurrent use.
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

// Verify asks the store about the purchase token in in.Receipt. The error is ErrInvalid or ErrUnavailable under
// errors.Is.
func (p *PlatformA) Verify(ctx context.Context, in Purchase) (sold Sale, err error) {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	record, err := p.lookup(ctx, in.ProductID, in.Receipt)
	if err == nil {
		sold, err = record.check(in, p.cfg.AllowTest)
	}
	if err != nil {
		return Sale{}, fmt.Errorf("platform_a: %w", err)
	}
	return sold, nil
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
	case refusesUs(status):
		return productPurchase{}, fmt.Errorf("%w: look up purchase: status %d", ErrUnavailable, status)
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

// accessToken returns an access token. The error is ErrInvalid and ErrCredentials if the token endpoint answers 400,
// and otherwise ErrUnavailable.
func (p *PlatformA) accessToken(ctx context.Context) (string, error) {
	access, err := p.access.Get(ctx)
	if failed, ok := errors.AsType[*credentials.TokenError](err); ok {
		if failed.Status == http.StatusBadRequest {
			return "", refuse(Unverified, "%w: %w", ErrCredentials, err)
		}
		return "", fmt.Errorf("%w: %w", ErrUnavailable, err)
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
	// PurchaseState is 0 purchased, 1 cancelled, 2 pending. The store includes zeros, so a missing state is not a
	// purchase. (It documents purchaseType as present only where it applies, and 0 is one of its values.)
	PurchaseState *int64 `json:"purchaseState"`
	PurchaseType  *int64 `json:"purchaseType"`
	Quantity      *int64 `json:"quantity"`
	// Refundable is how much of the quantity the store has not refunded.
	Refundable *int64 `json:"refundableQuantity"`
	// OrderID is empty for a purchase without a payment, such as one by a promotion code.
	OrderID string `json:"orderId"`
	// ProductID is documented as "may not be present".
	ProductID string `json:"productId"`
	// ObfuscatedAccountID is present if the app named an account at the purchase.
	ObfuscatedAccountID string `json:"obfuscatedExternalAccountId"`
}

// order returns the id of a purchase, whose token the caller knows.
func (r productPurchase) order(token string) string { return cmp.Or(r.OrderID, token) }

// check returns what was sold, or an error that names the broken rule.
func (r productPurchase) check(in Purchase, allowTest bool) (Sale, error) {
	test := r.PurchaseType != nil && *r.PurchaseType == typeTest
	switch {
	case r.PurchaseState == nil:
		return Sale{}, refuse(Unverified, "no purchase state")
	case r.ObfuscatedAccountID != "" && r.ObfuscatedAccountID != in.AccountID:
		return Sale{}, refuse(OtherAccount, "bought by another account")
	case r.ProductID != "" && r.ProductID != in.ProductID:
		return Sale{}, refuse(Mismatch, "the token belongs to another product")
	case *r.PurchaseState == statePending: // and has no order id yet
		return Sale{}, refuse(Pending, "not paid yet")
	case in.TransactionID == "" || r.order(in.Receipt) != in.TransactionID:
		return Sale{}, refuse(Mismatch, "order id is another one")
	case *r.PurchaseState == stateCancelled:
		return Sale{}, refuse(Cancelled, "purchase was cancelled")
	case *r.PurchaseState != statePurchased:
		return Sale{}, refuse(Unverified, "purchase state %d", *r.PurchaseState)
	case test && !allowTest:
		return Sale{}, refuse(TestPurchase, "bought by a licence tester")
	}
	quantity, err := quantityOf(r.Quantity)
	if err != nil {
		return Sale{}, err
	}
	sold := Sale{Quantity: quantity, Test: test}
	if r.Refundable != nil && *r.Refundable < quantity {
		if *r.Refundable <= 0 {
			return Sale{}, refuse(Revoked, "all of it was refunded")
		}
		sold.Refunded = Share{quantity - *r.Refundable, quantity}
	}
	return sold, nil
}
