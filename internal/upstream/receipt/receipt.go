// Package receipt asks the stores whether a purchase was made, and whether it was reversed since.
//
// It owns the wire formats of platform_a and platform_b, our credentials there, and the rules by which an answer counts
// as proof. It does not handle credits, users or prices: a purchase is proven (nil), not proven ([ErrInvalid], with a
// [Reason]) or undecidable for now ([ErrUnavailable]).
package receipt

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"cutroom/internal/base/httpcall"
)

// The two outcomes of a failed verification. Every error of a Verify method matches exactly one of them. Their text is
// for the log and never contains a purchase token or a credential.
var (
	// ErrInvalid means that the store does not confirm the purchase.
	ErrInvalid = errors.New("receipt invalid")
	// ErrUnavailable means that the store gave no usable answer: unreachable, too slow, cut off, 5xx or 429, or that it
	// refused the service instead of the purchase. The same purchase may succeed later.
	ErrUnavailable = errors.New("store unavailable")
)

// ErrCredentials matches an ErrInvalid that only means that the store refuses our credentials. It says nothing about
// the purchase and must not count against the user.
var ErrCredentials = errors.New("the store refuses our credentials")

// Sale is what a store confirms.
type Sale struct {
	Quantity int64 // >= 1
	// Refunded is the share that the store has refunded already; never all of it.
	Refunded Share
	// Test says that nobody paid.
	Test bool
}

// Share is a part of a purchase that a store has refunded, as a fraction. The zero Share means that it has refunded
// nothing.
type Share struct{ Part, Of int64 }

// All is the refund of a whole purchase.
var All = Share{1, 1}

// Credits returns this share of n credits, rounded to the nearest whole number, halves up.
func (s Share) Credits(n int64) int64 {
	if s.Of == 0 {
		return 0
	}
	return (2*n*s.Part + s.Of) / (2 * s.Of)
}

// Reason is a code for why a receipt is not valid.
type Reason string

// The reasons.
const (
	Pending      Reason = "pending"       // not paid yet: the same purchase may pass later
	Cancelled    Reason = "cancelled"     // cancelled in the store
	Revoked      Reason = "revoked"       // refunded or revoked by the store
	OtherAccount Reason = "other_account" // bought by or for another account
	Mismatch     Reason = "mismatch"      // belongs to another product, order, app or environment
	TestPurchase Reason = "test_purchase" // made by a licence tester, free of charge
	Unverified   Reason = "unverified"    // not confirmed by the store
)

// refusal is an ErrInvalid with its reason.
type refusal struct {
	reason Reason
	cause  error
}

func refuse(reason Reason, format string, args ...any) error {
	return &refusal{reason, fmt.Errorf(format, args...)}
}

func (r *refusal) Error() string        { return r.cause.Error() }
func (r *refusal) Is(target error) bool { return target == ErrInvalid }
func (r *refusal) Unwrap() error        { return r.cause }

// ReasonOf returns the reason of an ErrInvalid.
func ReasonOf(err error) Reason {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.reason
	}
	return Unverified
}

// Purchase is what a client claims to have bought.
type Purchase struct {
	TransactionID string // the store's order or transaction id
	ProductID     string // the store's product id
	Receipt       string // platform_a: the purchase token; platform_b: unused
	AccountID     string // claiming account; must match the account the store recorded, if any
}

// maxQuantity bounds the quantity of one purchase. The stores allow less; the bound keeps an absurd number out of the
// ledger.
const maxQuantity = 1000

// quantityOf returns the quantity of a purchase, 1 if the store states none.
func quantityOf(claimed *int64) (int64, error) {
	switch {
	case claimed == nil:
		return 1, nil
	case *claimed < 1 || *claimed > maxQuantity:
		return 0, refuse(Unverified, "quantity %d", *claimed)
	default:
		return *claimed, nil
	}
}

const (
	// maxPartBytes bounds a path segment from client input. Purchase tokens have about 150 characters, ids fewer.
	maxPartBytes = 4 << 10
	// verifyTimeout bounds a whole verification, unless client or context have a tighter limit: a buyer is waiting.
	verifyTimeout = 30 * time.Second
)

// segment escapes one path segment. An empty or oversized one, or one that a server might resolve as a folder, is
// ErrInvalid.
func segment(name, part string) (string, error) {
	if part == "" || part == "." || part == ".." || len(part) > maxPartBytes {
		return "", fmt.Errorf("%w: %s of %d bytes cannot be one", ErrInvalid, name, len(part))
	}
	return url.PathEscape(part), nil
}

// refusesUs reports whether a status refuses the service and not a purchase.
func refusesUs(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden
}

// authorizedGet calls a store's API with a bearer token. A temporary failure (no complete answer, 5xx, 429, 408) is
// ErrUnavailable, an oversized answer ErrInvalid.
func authorizedGet(ctx context.Context, client *http.Client, address, bearer string) (int, []byte, error) {
	status, body, err := httpcall.Get(ctx, client, address, bearer)
	switch {
	case errors.Is(err, httpcall.ErrTooLong):
		return 0, nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	case err != nil:
		return 0, nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	case httpcall.IsTemporary(status):
		return 0, nil, fmt.Errorf("%w: status %d", ErrUnavailable, status)
	}
	return status, body, nil
}
