// Refunds at the stores: their notifications, which are only claims, and the queries whose answers count.

package receipt

import (
	"cmp"
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
	// ErrNotConfigured means that notifications are not configured.
	ErrNotConfigured = errors.New("notifications are not configured")
)

// Transaction names a purchase to its store.
type Transaction struct {
	// ID is the order or transaction id, "" if only ProductID and Token are known.
	ID string
	// ProductID and Token allow a query to platform_a about this purchase. Without them Refunds reads only the list of
	// recent refunds.
	ProductID, Token string
}

// Notice is the unverified claim of a store's notification. The zero Notice concerns none of our purchases.
type Notice struct {
	Transaction Transaction
	// Partial says that only part of the quantity was refunded.
	Partial bool
	// Problem says why the notification cannot be read, if its sender is set up wrong.
	Problem string
}

// notificationA holds the fields of platform_a's developer notifications that we read.
type notificationA struct {
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

// refundOfAll is the store's code for a refund of the whole purchase.
const refundOfAll = 1

// Notification parses a push from platform_a: a Pub/Sub message with a developer notification in it. bearer is the
// token of the push. The error is ErrNotConfigured, ErrForged or ErrUnavailable under errors.Is.
func (p *PlatformA) Notification(ctx context.Context, bearer string, body []byte) (Notice, error) {
	if p.cfg.Sender == nil {
		return Notice{}, fmt.Errorf("platform_a: %w", ErrNotConfigured)
	}
	if err := p.cfg.Sender(ctx, bearer); err != nil {
		return Notice{}, fmt.Errorf("platform_a: push: %w", err)
	}
	var push struct {
		Message struct {
			Data string `json:"data"`
		} `json:"message"`
	}
	var notice notificationA
	// An unreadable message with a valid token will never become readable: accept it, so that the store does not send
	// it again.
	if json.Unmarshal(body, &push) != nil {
		return Notice{}, nil
	}
	if push.Message.Data == "" && json.Unmarshal(body, &notice) == nil && notice.PackageName == p.cfg.PackageName {
		return Notice{Problem: "the push subscription sends unwrapped messages; switch its payload unwrapping off"}, nil
	}
	data, err := base64.StdEncoding.DecodeString(push.Message.Data)
	if err != nil || json.Unmarshal(data, &notice) != nil || notice.PackageName != p.cfg.PackageName {
		return Notice{}, nil
	}
	const cancelled = 2 // notificationType of a oneTimeProductNotification
	switch {
	case notice.Voided.OrderID != "" || notice.Voided.Token != "":
		return Notice{Transaction: Transaction{ID: cmp.Or(notice.Voided.OrderID, notice.Voided.Token), Token: notice.Voided.Token},
			Partial: notice.Voided.RefundType > refundOfAll}, nil
	case notice.OneTime.Type == cancelled:
		return Notice{Transaction: Transaction{ProductID: notice.OneTime.SKU, Token: notice.OneTime.Token}}, nil
	}
	return Notice{}, nil
}

// maxVoidedPages bounds how many pages of voided purchases are read, with 1,000 purchases each.
const maxVoidedPages = 20

// Unconfirmed reports whether an error of Refunds leaves open what the store would say, so that it must be asked again.
func Unconfirmed(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrCredentials)
}

// Refunds returns the order ids of purchases that platform_a has refunded or voided, each in full: those among asked,
// and all others in the store's list, which covers the last 30 days. Refunds reads the list only for a transaction with
// an id about which its token gives no answer. The error is ErrUnavailable, ErrInvalid, or an error that says that the
// list is too long; then Refunds returns all that it read.
func (p *PlatformA) Refunds(ctx context.Context, asked []Transaction) (map[string]Share, error) {
	refunded := map[string]Share{}
	open := false
	for _, t := range asked {
		if t.Token == "" || t.ProductID == "" {
			open = true
			continue
		}
		record, err := p.lookup(ctx, t.ProductID, t.Token)
		if Unconfirmed(err) {
			return nil, fmt.Errorf("platform_a: %w", err)
		}
		if err == nil && record.PurchaseState != nil && *record.PurchaseState == stateCancelled {
			refunded[record.order(t.Token)] = All
			continue
		}
		open = open || t.ID != ""
	}
	if !open {
		return refunded, nil
	}
	query := url.Values{"type": {"0"}, "maxResults": {"1000"}}
	for range maxVoidedPages {
		next, err := p.voided(ctx, query, refunded)
		if err != nil {
			return nil, fmt.Errorf("platform_a: voided purchases: %w", err)
		}
		if next == "" {
			return refunded, nil
		}
		query.Set("token", next)
	}
	return refunded, fmt.Errorf("platform_a: the list of voided purchases has more than %d pages; the rest was not read", maxVoidedPages)
}

// voided adds a page of voided purchases to refunded and returns the token of the next page.
func (p *PlatformA) voided(ctx context.Context, query url.Values, refunded map[string]Share) (next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	status, body, err := p.get(ctx, p.purchasesURL+"voidedpurchases?"+query.Encode())
	if err != nil {
		return "", err
	}
	if refusesUs(status) {
		return "", fmt.Errorf("%w: status %d", ErrUnavailable, status)
	}
	if status != http.StatusOK {
		return "", refuse(Unverified, "status %d", status)
	}
	var page struct {
		Voided []struct {
			OrderID string `json:"orderId"`
			Token   string `json:"purchaseToken"`
		} `json:"voidedPurchases"`
		Pages struct {
			Next string `json:"nextPageToken"`
		} `json:"tokenPagination"`
	}
	if err := json.Unmarshal(body, &page); err != nil {
		return "", refuse(Unverified, "the list is not readable")
	}
	for _, v := range page.Voided {
		refunded[cmp.Or(v.OrderID, v.Token)] = All
	}
	return page.Pages.Next, nil
}

// Notification parses a notification of platform_b: a signed payload with a signed transaction in it. The error is
// ErrForged under errors.Is.
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
	switch notice.Type {
	case "REFUND", "REFUND_REVERSED", "REVOKE": // REVOKE concerns family sharing, which grants nothing here; ask anyway
	default: // concerns no consumable
		return Notice{}, nil
	}
	t, err := p.open(notice.Data.Transaction, p.environments...)
	if err != nil { // for another app or environment, or not a transaction
		return Notice{}, nil
	}
	return Notice{Transaction: Transaction{ID: t.TransactionID}}, nil
}

// Refunds asks platform_b about each transaction and returns for each known id the share that platform_b has refunded
// so far. With ErrUnavailable it also returns the answers received so far.
func (p *PlatformB) Refunds(ctx context.Context, asked []Transaction) (map[string]Share, error) {
	known := map[string]Share{}
	for _, t := range asked {
		each, cancel := context.WithTimeout(ctx, verifyTimeout)
		found, err := p.lookup(each, t.ID)
		cancel()
		if Unconfirmed(err) {
			return known, fmt.Errorf("platform_b: %w", err)
		}
		if err == nil {
			known[t.ID] = found.refunded()
		}
	}
	return known, nil
}
