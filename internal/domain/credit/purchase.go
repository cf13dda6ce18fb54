// Purchases: a store verifies the receipt, and one transaction records the purchase and grants the credits, once for
// each order. Grants to admins, which no store verifies, are here, too.

package credit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/base/tracing"
	"cutroom/internal/upstream/receipt"
	"cutroom/internal/work/audit"
	"cutroom/internal/work/user"
)

// The purchase platforms.
const (
	PlatformA = "platform_a"
	PlatformB = "platform_b"
)

// Store checks purchases with their platform.
type Store interface {
	// Verify returns what the store sold. It returns receipt.ErrUnavailable if the store did not answer, or refused the
	// service, and a retry is safe, and any other error for an invalid receipt.
	Verify(ctx context.Context, p receipt.Purchase) (receipt.Sale, error)
	// Notification reads a notification. It returns receipt.ErrForged unless the store signed it, and
	// receipt.ErrNotConfigured if notifications are not configured.
	Notification(ctx context.Context, bearer string, body []byte) (receipt.Notice, error)
	// Refunds returns, for each transaction that the store knows, the share that the store has refunded so far. The map
	// may hold transactions that were not asked about. Its contents are valid even with an error.
	Refunds(ctx context.Context, asked []receipt.Transaction) (map[string]receipt.Share, error)
}

// maxAsking is the number of concurrent requests from this process to one store. Forged receipts must not use up the
// app's quota at the store.
const maxAsking = 8

// limitedStore is a Store with a limit on concurrent requests.
type limitedStore struct {
	Store
	platform string
	slots    *semaphore.Weighted
}

// Verify calls the store, as a span of the request's trace.
func (s *limitedStore) Verify(ctx context.Context, p receipt.Purchase) (sold receipt.Sale, err error) {
	ctx, end := tracing.Start(ctx, "store "+s.platform)
	defer func() { end(err) }()
	return s.Store.Verify(ctx, p)
}

// maxQueueing is how long a receipt waits for a free request to its store.
const maxQueueing = 20 * time.Second

// acquire waits until a request may be sent. The caller calls release after the request.
func (s *limitedStore) acquire(ctx context.Context) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, maxQueueing)
	defer cancel()
	if err := s.slots.Acquire(ctx, 1); err != nil {
		return nil, fmt.Errorf("%w: too many requests at once: %w", receipt.ErrUnavailable, err)
	}
	return func() { s.slots.Release(1) }, nil
}

// PurchaseRequest is what a client claims to have bought.
type PurchaseRequest struct {
	Platform      string `json:"platform"`
	TransactionID string `json:"transactionId"`
	Receipt       string `json:"receipt"`
	ProductID     string `json:"productId"`
}

// Grant is the outcome of a purchase or an admin grant.
type Grant struct {
	Granted       int64  `json:"granted"` // 0 if the transaction was paid out before
	Balance       int64  `json:"balance"`
	TransactionID string `json:"transactionId"`
}

// Purchase verifies a receipt with its store and grants the product's credits, once per (platform, transaction).
func (l *Ledger) Purchase(ctx context.Context, userID string, req PurchaseRequest) (Grant, error) {
	platform, err := platformOf(req.Platform)
	if err != nil {
		return Grant{}, err
	}
	transaction := strings.TrimSpace(req.TransactionID)
	if transaction == "" || strings.TrimSpace(req.Receipt) == "" {
		return Grant{}, fault.New(fault.Invalid, "missing_receipt")
	}
	credits, ok := l.o.Catalog[req.ProductID]
	if !ok {
		return Grant{}, fault.New(fault.Invalid, "unknown_product")
	}
	store := l.stores[platform]
	if store == nil {
		return Grant{}, fault.New(fault.Invalid, "iap_unconfigured")
	}
	p := purchase{Order: Order{platform, transaction}, buyer: userID, product: req.ProductID}
	if plausible(transaction) {
		// A transaction that was already paid out needs no request to the store: the answer is the same, and a
		// retry must work while the store is down.
		if grant, spent, err := l.replay(ctx, p); spent || err != nil {
			return grant, err
		}
	}
	sold, err := l.verify(ctx, store, p, strings.TrimSpace(req.Receipt))
	if err != nil {
		return Grant{}, err
	}
	grant, err := l.payOut(ctx, p.withSale(sold, credits))
	if f := fault.As(err); f != nil && f.Code == receiptInvalid {
		return Grant{}, l.refused(ctx, p, f)
	}
	return grant, err
}

// platformOf normalises the name of a platform, in any case.
func platformOf(name string) (string, error) {
	platform := strings.ToLower(strings.TrimSpace(name))
	if platform != PlatformA && platform != PlatformB {
		return "", fault.New(fault.Invalid, "invalid_platform")
	}
	return platform, nil
}

// Order names a purchase by the number that its store gave it.
type Order struct{ Platform, TransactionID string }

// Hash stands for the order after its buyer's account is deleted. The ledger can still recognise the order, and the
// hash contains no personal data.
func (o Order) Hash() string {
	sum := sha256.Sum256([]byte(o.Platform + "\x00" + o.TransactionID))
	return hex.EncodeToString(sum[:])
}

// ref is the reference of the order's entry in the ledger.
func (o Order) ref() string { return o.Platform + "-" + o.TransactionID }

// purchase is an order that the ledger is to credit.
type purchase struct {
	Order
	buyer, product string
	credits        int64 // that the store sold
	refunded       int64 // of credits: the share that it has refunded already, which is not granted
	bySupport      bool  // granted by hand
	test           bool  // nobody paid
}

// withSale returns the purchase completed with what the store sold. credits is the number of credits of one unit of the
// product.
func (p purchase) withSale(sold receipt.Sale, credits int64) purchase {
	p.credits = sold.Quantity * credits
	p.refunded = sold.Refunded.Credits(p.credits)
	p.test = sold.Test
	return p
}

// maxTransaction is far above the length of a store's ids, in bytes, and below the limit of a database index.
const maxTransaction = 255

// plausible reports whether a text can be a store's id: short and without invisible characters.
func plausible(transaction string) bool {
	return len(transaction) <= maxTransaction &&
		!strings.ContainsFunc(transaction, func(r rune) bool { return r == utf8.RuneError || !unicode.IsGraphic(r) })
}

// verify asks a store about a purchase, unless too many receipts of this user were refused within the last minute. It
// records an unsuccessful attempt for support.
func (l *Ledger) verify(ctx context.Context, store *limitedStore, p purchase, token string) (receipt.Sale, error) {
	done, err := store.acquire(ctx)
	if err != nil {
		return receipt.Sale{}, l.recordUnanswered(ctx, p, unanswered(err))
	}
	defer done()
	if err := refusals.Check(ctx, l.o.DB, p.buyer); err != nil {
		return receipt.Sale{}, err
	}
	sold, err := p.askStore(ctx, store, token)
	switch f := fault.As(err); {
	case f == nil:
		return sold, err
	case f.Code != receiptInvalid:
		return receipt.Sale{}, l.recordUnanswered(ctx, p, f)
	default:
		return receipt.Sale{}, l.refused(ctx, p, f)
	}
}

// refused records that a receipt was refused, counts it against its user unless the fault is ours, and returns the
// failure.
func (l *Ledger) refused(ctx context.Context, p purchase, failure *fault.Error) error {
	if !errors.Is(failure.Err, receipt.ErrCredentials) {
		if limited := refusals.Take(ctx, l.o.DB, p.buyer); limited != nil && fault.As(limited) == nil {
			return limited
		}
	}
	if err := l.recordRefusal(ctx, p, failure.Detail); err != nil {
		return err
	}
	return failure
}

// unanswered is the failure of an attempt that a store did not answer.
func unanswered(cause error) *fault.Error {
	return fault.New(fault.BadGateway, ReasonUnanswered).WithCause(cause)
}

// askStore asks the store about a purchase.
func (p purchase) askStore(ctx context.Context, store *limitedStore, token string) (sold receipt.Sale, err error) {
	err = fmt.Errorf("%w: a transaction id of %d bytes cannot be one", receipt.ErrInvalid, len(p.TransactionID))
	if plausible(p.TransactionID) {
		sold, err = store.Verify(ctx, receipt.Purchase{TransactionID: p.TransactionID, ProductID: p.product,
			Receipt: token, AccountID: p.buyer})
	}
	switch {
	case err == nil:
		return sold, nil
	case errors.Is(err, receipt.ErrUnavailable), ctx.Err() != nil:
		return receipt.Sale{}, unanswered(err)
	}
	return receipt.Sale{}, fault.New(fault.Invalid, receiptInvalid).WithDetail("%s", receipt.ReasonOf(err)).WithCause(err)
}

// insert records that a purchase is paid out, unless it already is. From then on its receipt pays nothing.
func (p purchase) insert(ctx context.Context, tx *db.Tx) (inserted bool, err error) {
	n, err := tx.Exec(ctx, `INSERT INTO purchases
		(platform, transaction_hash, order_id, product_id, credits, refunded, taken, buyer_id, created_at, by_support, test)
		VALUES ($1, $2, $3, $4, $5, $6, $6, $7, now_ms(), CASE WHEN $8 THEN 1 ELSE 0 END, CASE WHEN $9 THEN 1 ELSE 0 END)
		ON CONFLICT (platform, transaction_hash) DO NOTHING`,
		p.Platform, p.Hash(), p.TransactionID, p.product, p.credits, p.refunded, p.buyer, p.bySupport, p.test)
	if err != nil {
		return false, fmt.Errorf("record purchase: %w", err)
	}
	return n == 1, nil
}

// The maximum number of credits that an account gets for free test purchases on platform_b, and the rolling period for
// which it holds. Anybody can become a tester there.
const (
	maxTested    = 1000
	testedWithin = day
)

// checkTested refuses a free test beyond the limit. The transaction must hold the lock on the user.
func (p purchase) checkTested(ctx context.Context, tx *db.Tx) error {
	if !p.test || p.Platform != PlatformB {
		return nil
	}
	var granted int64
	err := tx.QueryRow(ctx, `SELECT CAST(COALESCE(SUM(l.amount), 0) AS BIGINT) FROM purchases p
		JOIN credit_ledger l ON l.ref_id = p.platform || '-' || p.order_id
		WHERE p.buyer_id = $1 AND p.test = 1 AND p.platform = $2 AND p.created_at > now_ms() - $3`,
		p.buyer, p.Platform, testedWithin.Milliseconds()).Scan(&granted)
	if err != nil {
		return fmt.Errorf("sum tests: %w", err)
	}
	if granted+p.credits-p.refunded > maxTested {
		return fault.New(fault.Invalid, receiptInvalid).WithDetail("%s", receipt.TestPurchase).
			WithCause(fmt.Errorf("%d credits for tests, at most %d in %v", granted, maxTested, testedWithin))
	}
	return nil
}

// payOut grants the credits of a purchase that its store has confirmed, once.
func (l *Ledger) payOut(ctx context.Context, p purchase) (Grant, error) {
	granted := p.credits - p.refunded
	if granted == 0 {
		return Grant{}, fault.New(fault.Invalid, receiptInvalid).WithDetail("%s", receipt.Revoked)
	}
	paid := false
	err := l.o.DB.InTx(ctx, func(tx *db.Tx) error {
		// An account whose deletion has begun must not spend the receipt: the credits would be lost with the account.
		err := user.Lock(ctx, tx, p.buyer)
		if err != nil {
			return err
		}
		if paid, err = p.insert(ctx, tx); err != nil || !paid {
			return err
		}
		if err := p.checkTested(ctx, tx); err != nil {
			return err
		}
		_, err = enter(ctx, tx, p.buyer, kindPurchase, p.ref(), granted)
		return err
	})
	if err != nil {
		return Grant{}, err
	}
	if !paid {
		grant, _, err := l.replay(ctx, p)
		return grant, err
	}
	have, err := l.Balance(ctx, p.buyer)
	return Grant{Granted: granted, Balance: have, TransactionID: p.TransactionID}, err
}

// replay answers a request for an order, and reports true, if the order was already paid out.
func (l *Ledger) replay(ctx context.Context, p purchase) (grant Grant, spent bool, err error) {
	buyer, product, spent, err := p.spentBy(ctx, l.o.DB)
	if err != nil || !spent {
		return Grant{}, false, err
	}
	if p.product != "" && product != bySupport && product != p.product {
		// A cart with several products is a single order, and only the first product that was presented has been
		// granted.
		l.o.Log.Warn("an order that was paid out came again with another product; the app must sell one product per purchase",
			"platform", p.Platform, "order", p.TransactionID, "user", p.buyer, "granted", product, "presented", p.product)
	}
	if buyer != p.buyer {
		l.o.Log.Warn("suspicious: a spent receipt was presented by another account",
			"platform", p.Platform, "user", p.buyer, "buyer", buyer)
	}
	have, err := l.Balance(ctx, p.buyer)
	return Grant{Balance: have, TransactionID: p.TransactionID}, true, err
}

// spentBy reports whether an order was paid out, for which product, and the buyer, "" after the account's deletion.
func (o Order) spentBy(ctx context.Context, q db.Querier) (buyer, product string, spent bool, err error) {
	err = q.QueryRow(ctx, `SELECT COALESCE(buyer_id, ''), product_id FROM purchases
		WHERE platform = $1 AND transaction_hash = $2`, o.Platform, o.Hash()).Scan(&buyer, &product)
	if db.IsNoRows(err) {
		return "", "", false, nil
	}
	if err != nil {
		return "", "", false, fmt.Errorf("look for purchase: %w", err)
	}
	return buyer, product, true, nil
}

// bySupport is the product of an order whose credits support granted.
const bySupport = "support"

// AdminGrant mints a product's credits for the calling admin, up to the cap in any rolling 24 hours. It refuses a user
// who has lost the role.
func (l *Ledger) AdminGrant(ctx context.Context, adminID, productID string) (Grant, error) {
	credits, ok := l.o.Catalog[productID]
	if !ok {
		return Grant{}, fault.New(fault.Invalid, "unknown_product")
	}
	ref := "admin-" + uuid.NewString()
	err := l.o.DB.InTx(ctx, func(tx *db.Tx) error {
		// Summing and then inserting would race between two parallel grants.
		if err := tx.Lock(ctx, "admin-grant:"+adminID); err != nil {
			return err
		}
		if err := user.LockAdmin(ctx, tx, adminID); err != nil {
			return err
		}
		var granted int64
		err := tx.QueryRow(ctx, `SELECT COALESCE(SUM(amount), 0) FROM credit_ledger
			WHERE user_id = $1 AND kind = 'admin' AND created_at > now_ms() - $2`,
			adminID, day.Milliseconds()).Scan(&granted)
		if err != nil {
			return fmt.Errorf("sum admin grants: %w", err)
		}
		if granted+credits > l.o.AdminDailyCap {
			return fault.New(fault.RateLimited, "admin_grant_daily_cap_exceeded").
				WithDetail("granted=%d cap=%d", granted, l.o.AdminDailyCap)
		}
		if _, err = enter(ctx, tx, adminID, kindAdmin, ref, credits); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Entry{Actor: adminID, Action: audit.AdminGrant, Target: adminID,
			Detail: audit.Detail{"credits": credits, "ref": ref}})
	})
	if err != nil {
		return Grant{}, err
	}
	have, err := l.Balance(ctx, adminID)
	return Grant{Granted: credits, Balance: have, TransactionID: ref}, err
}
