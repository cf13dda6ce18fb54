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

	"cutroom/internal/audit"
	"cutroom/internal/db"
	"cutroom/internal/fault"
	"cutroom/internal/tracing"
	"cutroom/internal/upstream/receipt"
	"cutroom/internal/user"
)

// The purchase platforms.
const (
	PlatformA = "platform_a"
	PlatformB = "platform_b"
)

// Store checks purchases with their platform.
type Store interface {
	// Verify returns the quantity of a purchase (>= 1). It returns receipt.ErrUnavailable if the store did not
	// answer and a retry is safe, and any other error for an invalid receipt.
	Verify(ctx context.Context, p receipt.Purchase) (quantity int64, err error)
	// Notification reads a notification. It returns receipt.ErrForged unless the
	// store signed it, and receipt.ErrNotHeeded if notifications are not configured.
	Notification(ctx context.Context, bearer string, body []byte) (receipt.Notice, error)
	// Reversed returns, for each transaction that the store knows, whether the store
	// refunded it. The map may hold transactions that were not asked about. Its
	// contents are valid even with an error.
	Reversed(ctx context.Context, asked []receipt.Transaction) (map[string]bool, error)
}

// maxAsking is the number of concurrent requests from this process to one store. Forged receipts must not use
// up the app's quota at the store.
const maxAsking = 8

// limitedStore is a Store with a limit on concurrent requests.
type limitedStore struct {
	Store
	platform string
	slots    *semaphore.Weighted
}

// Verify calls the store, as a span of the request's trace.
func (s *limitedStore) Verify(ctx context.Context, p receipt.Purchase) (quantity int64, err error) {
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

// Purchase verifies a receipt with its store and grants the product's credits,
// once per (platform, transaction).
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
	quantity, err := l.verify(ctx, store, p, strings.TrimSpace(req.Receipt))
	if err != nil {
		return Grant{}, err
	}
	p.credits = quantity * credits
	return l.payOut(ctx, p)
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

// Hash stands for the order after its buyer's account is deleted. The ledger can still recognise the order, and
// the hash contains no personal data.
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
	credits        int64
	bySupport      bool // granted by hand
}

// maxTransaction is far above the length of a store's ids, in bytes, and below the
// limit of a database index.
const maxTransaction = 255

// plausible reports whether a text can be a store's id: short and without invisible characters.
func plausible(transaction string) bool {
	return len(transaction) <= maxTransaction &&
		!strings.ContainsFunc(transaction, func(r rune) bool { return r == utf8.RuneError || !unicode.IsGraphic(r) })
}

// verify asks a store about a purchase, unless too many receipts of this user
// were refused within the last minute. It records an attempt without success for support.
func (l *Ledger) verify(ctx context.Context, store *limitedStore, p purchase, token string) (quantity int64, err error) {
	done, err := store.acquire(ctx)
	if err != nil {
		return 0, l.recordUnanswered(ctx, p, unanswered(err))
	}
	defer done()
	if err := refusals.Check(ctx, l.o.DB, p.buyer); err != nil {
		return 0, err
	}
	quantity, err = p.askStore(ctx, store, token)
	switch f := fault.As(err); {
	case f == nil:
		return quantity, err
	case f.Code != receiptInvalid:
		return 0, l.recordUnanswered(ctx, p, f)
	}
	if limited := refusals.Take(ctx, l.o.DB, p.buyer); limited != nil && fault.As(limited) == nil {
		return 0, limited
	}
	if recordErr := l.recordRefusal(ctx, p, fault.As(err).Detail); recordErr != nil {
		return 0, recordErr
	}
	return 0, err
}

// unanswered is the failure of an attempt that a store did not answer.
func unanswered(cause error) *fault.Error {
	return fault.New(fault.BadGateway, ReasonUnanswered).WithCause(cause)
}

// askStore asks the store for the quantity of a purchase.
func (p purchase) askStore(ctx context.Context, store *limitedStore, token string) (quantity int64, err error) {
	err = fmt.Errorf("%w: a transaction id of %d bytes cannot be one", receipt.ErrInvalid, len(p.TransactionID))
	if plausible(p.TransactionID) {
		quantity, err = store.Verify(ctx, receipt.Purchase{TransactionID: p.TransactionID, ProductID: p.product,
			Receipt: token, AccountID: p.buyer})
	}
	switch {
	case err == nil:
		return quantity, nil
	case errors.Is(err, receipt.ErrUnavailable), ctx.Err() != nil:
		return 0, unanswered(err)
	}
	return 0, fault.New(fault.Invalid, receiptInvalid).WithDetail("%s", receipt.ReasonOf(err)).WithCause(err)
}

// insert records that a purchase is paid out, unless it already is. From then on its receipt pays nothing.
func (p purchase) insert(ctx context.Context, tx *db.Tx) (inserted bool, err error) {
	n, err := tx.Exec(ctx, `INSERT INTO purchases
		(platform, transaction_hash, order_id, product_id, credits, buyer_id, created_at, by_support)
		VALUES ($1, $2, $3, $4, $5, $6, now_ms(), CASE WHEN $7 THEN 1 ELSE 0 END) ON CONFLICT (platform, transaction_hash) DO NOTHING`,
		p.Platform, p.Hash(), p.TransactionID, p.product, p.credits, p.buyer, p.bySupport)
	if err != nil {
		return false, fmt.Errorf("record purchase: %w", err)
	}
	return n == 1, nil
}

func (l *Ledger) payOut(ctx context.Context, p purchase) (Grant, error) {
	paid := false
	err := l.o.DB.InTx(ctx, func(tx *db.Tx) error {
		// An account whose deletion has begun must not spend the receipt: the credits
		// would be lost with the account.
		err := user.Lock(ctx, tx, p.buyer)
		if err != nil {
			return err
		}
		if paid, err = p.insert(ctx, tx); err != nil || !paid {
			return err
		}
		_, err = enter(ctx, tx, p.buyer, kindPurchase, p.ref(), p.credits)
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
	return Grant{Granted: p.credits, Balance: have, TransactionID: p.TransactionID}, err
}

// replay answers a request for an order, and reports true, if the order was already paid out.
func (l *Ledger) replay(ctx context.Context, p purchase) (grant Grant, spent bool, err error) {
	buyer, spent, err := p.spentBy(ctx, l.o.DB)
	if err != nil || !spent {
		return Grant{}, false, err
	}
	if buyer != p.buyer {
		l.o.Log.Warn("suspicious: a spent receipt was presented by another account",
			"platform", p.Platform, "user", p.buyer, "buyer", buyer)
	}
	have, err := l.Balance(ctx, p.buyer)
	return Grant{Balance: have, TransactionID: p.TransactionID}, true, err
}

// spentBy reports whether an order was paid out, and the buyer, "" after the account's deletion.
func (o Order) spentBy(ctx context.Context, q db.Querier) (buyer string, spent bool, err error) {
	err = q.QueryRow(ctx, `SELECT COALESCE(buyer_id, '') FROM purchases
		WHERE platform = $1 AND transaction_hash = $2`, o.Platform, o.Hash()).Scan(&buyer)
	if db.IsNoRows(err) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("look for purchase: %w", err)
	}
	return buyer, true, nil
}

// AdminGrant mints a product's credits for the calling admin, up to the cap in
// any rolling 24 hours. It is refused to a user who has lost the role.
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
