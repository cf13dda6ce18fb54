package receipt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"cutroom/internal/upstream/vendorhttp"
)

// DefaultPlatformABaseURL is platform_a's public API.
const DefaultPlatformABaseURL = "https://androidpublisher.googleapis.com"

// platformAScope is what our service account asks access to.
const platformAScope = "https://www.googleapis.com/auth/androidpublisher"

// PlatformAConfig says which app's purchases are verified, and as whom.
type PlatformAConfig struct {
	BaseURL            string           // blank means DefaultPlatformABaseURL
	PackageName        string           // the app's package
	ServiceAccountJSON []byte           // key file of a service account, as downloaded
	HTTP               *http.Client     // nil means http.DefaultClient; redirects are never followed
	Now                func() time.Time // nil means time.Now
}

// PlatformA verifies purchase tokens with platform_a. It is safe for
// concurrent use.
type PlatformA struct {
	productsURL string // up to and including "products/"
	client      *http.Client
	access      *accessTokens
}

// NewPlatformA checks the configuration, key included, and makes no call.
func NewPlatformA(cfg PlatformAConfig) (*PlatformA, error) {
	base, err := baseURL(cfg.BaseURL, DefaultPlatformABaseURL)
	if err != nil {
		return nil, fmt.Errorf("platform_a: %w", err)
	}
	if cfg.PackageName == "" {
		return nil, errors.New("platform_a: package name is empty")
	}
	account, err := parseServiceAccount(cfg.ServiceAccountJSON)
	if err != nil {
		return nil, fmt.Errorf("platform_a: service account: %w", err)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	client := vendorhttp.Private(cfg.HTTP)
	return &PlatformA{
		productsURL: base + "/androidpublisher/v3/applications/" + url.PathEscape(cfg.PackageName) + "/purchases/products/",
		client:      client,
		access:      newAccessTokens(account, platformAScope, client, cfg.Now),
	}, nil
}

// Verify asks the store about the purchase token in in.Receipt. The error is
// ErrInvalid or ErrUnavailable under errors.Is.
func (p *PlatformA) Verify(ctx context.Context, in Purchase) error {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	body, err := p.lookup(ctx, in)
	if err != nil {
		return fmt.Errorf("platform_a: %w", err)
	}
	if err := checkProductPurchase(body, in); err != nil {
		return fmt.Errorf("platform_a: %w: %w", ErrInvalid, err)
	}
	return nil
}

// lookup returns the store's record of the purchase.
func (p *PlatformA) lookup(ctx context.Context, in Purchase) ([]byte, error) {
	product, err := segment("product id", in.ProductID)
	if err != nil {
		return nil, err
	}
	purchaseToken, err := segment("purchase token", in.Receipt)
	if err != nil {
		return nil, err
	}
	address := p.productsURL + product + "/tokens/" + purchaseToken

	access, err := p.access.get(ctx)
	if err != nil {
		return nil, fmt.Errorf("access token: %w", err)
	}
	status, body, err := authorizedGet(ctx, p.client, address, access)
	if err == nil && status == http.StatusUnauthorized {
		// An access token can be revoked before its time. A fresh one settles
		// whether it was the token or our rights that were refused.
		p.access.discard(access)
		if access, err = p.access.get(ctx); err != nil {
			return nil, fmt.Errorf("fresh access token: %w", err)
		}
		status, body, err = authorizedGet(ctx, p.client, address, access)
	}
	if err != nil {
		return nil, fmt.Errorf("look up purchase: %w", err)
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("%w: look up purchase: status %d", ErrInvalid, status)
	}
	return body, nil
}

// productPurchase is the store's record, as far as we read it.
type productPurchase struct {
	// PurchaseState is 0 purchased, 1 cancelled, 2 pending. The store writes its
	// zeros out (its purchaseType is documented as present only where it means
	// something, and 0 is one of its values), so an absent state is no purchase.
	PurchaseState *int64 `json:"purchaseState"`
	OrderID       string `json:"orderId"`
	// ProductID is documented as "may not be present".
	ProductID string `json:"productId"`
	// ObfuscatedAccountID is present when the app named an account on buying.
	ObfuscatedAccountID string `json:"obfuscatedExternalAccountId"`
}

// checkProductPurchase says which rule the record breaks, if any.
func checkProductPurchase(body []byte, in Purchase) error {
	var record productPurchase
	if err := json.Unmarshal(body, &record); err != nil {
		// The decoder's own text may quote the purchase token.
		return errors.New("the store's record is not readable")
	}
	switch {
	case record.PurchaseState == nil:
		return errors.New("no purchase state")
	case *record.PurchaseState != 0:
		return fmt.Errorf("purchase state %d", *record.PurchaseState)
	case in.TransactionID == "" || record.OrderID != in.TransactionID:
		return errors.New("order id is another one")
	case record.ProductID != "" && record.ProductID != in.ProductID:
		return errors.New("the token belongs to another product")
	case record.ObfuscatedAccountID != "" && record.ObfuscatedAccountID != in.AccountID:
		return errors.New("bought by another account")
	}
	return nil
}
