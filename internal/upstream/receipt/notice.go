package receipt

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
)

// The errors of a notification, besides ErrUnavailable.
var (
	// ErrForged means that the store did not sign the notification.
	ErrForged = errors.New("notification is not signed by the store")
	// ErrNotHeeded means that notifications are not configured.
	ErrNotHeeded = errors.New("notifications are not configured")
)

// Transaction names a purchase to its store.
type Transaction struct {
	ID string // order or transaction id
	// ProductID and Token allow a query to platform_a about this purchase. Without them Reversed reads only the
	// list of recent refunds.
	ProductID, Token string
}

// Notice is the unverified claim of a store's notification. The zero Notice concerns none of our purchases.
type Notice struct {
	Transaction Transaction
	// Partial says that only part of the quantity was refunded.
	Partial bool
}

// refundOfAll is the store's code for a refund of the whole purchase.
const refundOfAll = 1

// Notification parses a push from platform_a: a Pub/Sub message with a developer notification in
// it. bearer is the token of the push. The error is ErrNotHeeded, ErrForged or ErrUnavailable under
// errors.Is.
func (p *PlatformA) Notification(ctx context.Context, bearer string, body []byte) (Notice, error) {
	if p.cfg.Sender == nil {
		return Notice{}, fmt.Errorf("platform_a: %w", ErrNotHeeded)
	}
	if err := p.cfg.Sender(ctx, bearer); err != nil {
		return Notice{}, fmt.Errorf("platform_a: push: %w", err)
	}
	var push struct {
		Message struct {
			Data string `json:"data"`
		} `json:"message"`
	}
	var notice struct {
		PackageName string `json:"packageName"`
		Voided      struct {
			Token      string `json:"purchaseToken"`
			OrderID    string `json:"orderId"`
			RefundType int64  `json:"refundType"`
		} `json:"voidedPurchaseNotification"`
		OneTime struct {
			Type  int64  `json:"notificationType"`
			Token string `json:"purchaseToken"`
			SKU   string `json:"sku"`
		} `json:"oneTimeProductNotification"`
	}
	// An unreadable message with a valid token will never become readable: accept it, so that the store does
	// not send it again.
	if json.Unmarshal(body, &push) != nil {
		return Notice{}, nil
	}
	data, err := base64.StdEncoding.DecodeString(push.Message.Data)
	if err != nil || json.Unmarshal(data, &notice) != nil || notice.PackageName != p.cfg.PackageName {
		return Notice{}, nil
	}
	const cancelled = 2 // notificationType of a oneTimeProductNotification
	switch {
	case notice.Voided.OrderID != "":
		return Notice{Transaction: Transaction{ID: notice.Voided.OrderID, Token: notice.Voided.Token},
			Partial: notice.Voided.RefundType > refundOfAll}, nil
	case notice.OneTime.Type == cancelled:
		return Notice{Transaction: Transaction{ProductID: notice.OneTime.SKU, Token: notice.OneTime.Token}}, nil
	}
	return Notice{}, nil
}

// maxVoidedPages bounds how many pages of voided purchases are read, with 1,000 purchases each.
const maxVoidedPages = 20

// Reversed returns the order ids of purchases that platform_a has refunded or voided, each true: those among
// asked, and all others in the store's list, which covers the last 30 days. The error is ErrUnavailable or
// ErrInvalid.
func (p *PlatformA) Reversed(ctx context.Context, asked []Transaction) (map[string]bool, error) {
	reversed := map[string]bool{}
	for _, t := range asked {
		if t.Token == "" || t.ProductID == "" {
			continue
		}
		record, err := p.lookup(ctx, t.ProductID, t.Token)
		if errors.Is(err, ErrUnavailable) {
			return nil, fmt.Errorf("platform_a: %w", err)
		}
		if err == nil && record.PurchaseState != nil && *record.PurchaseState == stateCancelled && record.OrderID != "" {
			reversed[record.OrderID] = true
		}
	}
	if len(reversed) == len(asked) {
		return reversed, nil
	}
	query := url.Values{"type": {"0"}, "maxResults": {"1000"}}
	for range maxVoidedPages {
		next, err := p.voided(ctx, query, reversed)
		if err != nil {
			return nil, fmt.Errorf("platform_a: voided purchases: %w", err)
		}
		if next == "" {
			break
		}
		query.Set("token", next)
	}
	return reversed, nil
}

// voided adds a page of voided purchases to ids and returns the token of the next page.
func (p *PlatformA) voided(ctx context.Context, query url.Values, ids map[string]bool) (next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	status, body, err := p.get(ctx, p.purchasesURL+"voidedpurchases?"+query.Encode())
	if err != nil {
		return "", err
	}
	if status != http.StatusOK {
		return "", refuse(Unverified, "status %d", status)
	}
	var page struct {
		Voided []struct {
			OrderID string `json:"orderId"`
		} `json:"voidedPurchases"`
		Pages struct {
			Next string `json:"nextPageToken"`
		} `json:"tokenPagination"`
	}
	if err := json.Unmarshal(body, &page); err != nil {
		return "", refuse(Unverified, "the list is not readable")
	}
	for _, v := range page.Voided {
		ids[v.OrderID] = true
	}
	return page.Pages.Next, nil
}

// Notification parses a notification of platform_b: a signed payload with a signed transaction in
// it. The error is ErrForged under errors.Is.
func (p *PlatformB) Notification(_ context.Context, _ string, body []byte) (Notice, error) {
	var sent struct {
		SignedPayload string `json:"signedPayload"`
	}
	if err := json.Unmarshal(body, &sent); err != nil {
		return Notice{}, fmt.Errorf("platform_b: %w: the body is not readable", ErrForged)
	}
	payload, err := verifySigned(sent.SignedPayload, p.roots, p.cfg.Now())
	if err != nil {
		return Notice{}, fmt.Errorf("platform_b: %w: %w", ErrForged, err)
	}
	var notice struct {
		Type string `json:"notificationType"`
		Data struct {
			Transaction string `json:"signedTransactionInfo"`
		} `json:"data"`
	}
	if json.Unmarshal(payload, &notice) != nil {
		return Notice{}, nil
	}
	// REVOKE concerns family sharing, which grants nothing here; ask the store anyway. No other type affects a
	// consumable; support handles a refund that the store takes back.
	if notice.Type != "REFUND" && notice.Type != "REVOKE" {
		return Notice{}, nil
	}
	t, err := p.open(notice.Data.Transaction)
	if err != nil { // for another app or environment, or not a transaction
		return Notice{}, nil
	}
	return Notice{Transaction: Transaction{ID: t.TransactionID}}, nil
}

// Reversed asks platform_b about each transaction and returns the known ids, true if platform_b has refunded or
// revoked them. With ErrUnavailable it also returns the answers received so far.
func (p *PlatformB) Reversed(ctx context.Context, asked []Transaction) (map[string]bool, error) {
	known := map[string]bool{}
	for _, t := range asked {
		each, cancel := context.WithTimeout(ctx, verifyTimeout)
		found, err := p.lookup(each, t.ID)
		cancel()
		if errors.Is(err, ErrUnavailable) {
			return known, fmt.Errorf("platform_b: %w", err)
		}
		if err == nil {
			known[t.ID] = found.revoked()
		}
	}
	return known, nil
}
