// Package receipt asks the stores about purchases: whether one was made, and
// whether it was taken back since.
//
// It owns the wire formats of platform_a and platform_b, our credentials
// towards them, and the rules by which an answer counts as proof. It knows
// nothing of credits, users or prices: a purchase is proven (nil), not proven
// ([ErrInvalid], for a [Reason]) or undecidable for now ([ErrUnavailable]).
package receipt

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"cutroom/internal/httpcall"
)

// The two ways in which verification fails. Every error of a Verify method is
// exactly one of them under errors.Is. The text around them is for the log; it
// never holds a purchase token or a credential.
var (
	// ErrInvalid says that the store does not confirm the purchase, whatever
	// the reason.
	ErrInvalid = errors.New("receipt invalid")
	// ErrUnavailable says that the store could not be asked: unreachable, too
	// slow, cut off, answering 5xx or 429. The same purchase may be tried again.
	ErrUnavailable = errors.New("store unavailable")
)

// Reason says in a word why a receipt is not valid.
type Reason string

// The reasons.
const (
	Pending      Reason = "pending"       // not paid yet: the same purchase may pass later
	Cancelled    Reason = "cancelled"     // the store has called it off
	Revoked      Reason = "revoked"       // the store took it back after the sale
	OtherAccount Reason = "other_account" // bought by or for somebody else
	Mismatch     Reason = "mismatch"      // of another product, order, app or environment
	TestPurchase Reason = "test_purchase" // by a licence tester, for no money
	Unverified   Reason = "unverified"    // the store does not vouch for it
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

// ReasonOf returns the reason of an ErrInvalid.
func ReasonOf(err error) Reason {
	var r *refusal
	if errors.As(err, &r) {
		return r.reason
	}
	return Unverified
}

// Purchase is what a client claims to have bought.
type Purchase struct {
	TransactionID string // the store's order or transaction id
	ProductID     string // the store's product id
	Receipt       string // platform_a: the purchase token. platform_b does not need it
	AccountID     string // who claims it: must match the account the store recorded, if any
}

// maxQuantity is the most of a product that one purchase can be of. The stores
// allow less; it keeps an absurd number out of the ledger.
const maxQuantity = 1000

// quantityOf is how many of the product a purchase is of; a store that does not
// say means one.
func quantityOf(said *int64) (int64, error) {
	switch {
	case said == nil:
		return 1, nil
	case *said < 1 || *said > maxQuantity:
		return 0, refuse(Unverified, "quantity %d", *said)
	default:
		return *said, nil
	}
}

const (
	// maxPartBytes caps one path segment made of what a client sent. Purchase
	// tokens have some 150 characters, ids fewer.
	maxPartBytes = 4 << 10
	// verifyTimeout bounds a whole verification, where the given client and
	// context do not bound it more tightly: somebody is waiting for what they
	// have paid for.
	verifyTimeout = 30 * time.Second
)

// segment escapes one part of a path. A part that could not name anything, or
// that a server might resolve as a folder, is ErrInvalid.
func segment(name, part string) (string, error) {
	if part == "" || part == "." || part == ".." || len(part) > maxPartBytes {
		return "", fmt.Errorf("%w: %s of %d bytes cannot be one", ErrInvalid, name, len(part))
	}
	return url.PathEscape(part), nil
}

// authorizedGet asks a store's API with a bearer token; see sorted.
func authorizedGet(ctx context.Context, client *http.Client, address, bearer string) (int, []byte, error) {
	return sorted(httpcall.Get(ctx, client, address, bearer))
}

// sorted tells the failures of a call apart: what is transient (no complete
// answer, 5xx, 429, 408) becomes ErrUnavailable, an absurdly long answer ErrInvalid.
func sorted(status int, body []byte, err error) (int, []byte, error) {
	switch {
	case errors.Is(err, httpcall.ErrTooLong):
		return 0, nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	case err != nil:
		return 0, nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	case status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout:
		return 0, nil, fmt.Errorf("%w: status %d", ErrUnavailable, status)
	}
	return status, body, nil
}
