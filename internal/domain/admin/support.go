// The reports about one user, order or job that support works with: ledger, purchases, refused receipts, assets, a
// job's history and the failed jobs.

package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/domain/credit"
	"cutroom/internal/work/job"
)

// LedgerEntry is a change of a user's balance.
type LedgerEntry struct {
	RefID     string `json:"refId"`
	Kind      string `json:"kind"`
	Credits   int64  `json:"credits"` // negative if credits were taken
	JobID     Text   `json:"jobId"`   // of a charge or refund
	OrderID   Text   `json:"orderId"` // of a purchase or reversal
	CreatedAt Time   `json:"createdAt"`
}

// reversedOrder is SQL for the order number of the reversal l. The reference of a later settlement continues after the
// order number.
const reversedOrder = `(SELECT MAX(order_id) FROM purchases p WHERE p.buyer_id = l.user_id AND p.order_id IS NOT NULL
	AND substr(l.ref_id, 1, length('reversal-' || p.platform || '-' || p.order_id)) = 'reversal-' || p.platform || '-' || p.order_id)`

// about extracts the job of a charge or refund, or the order of a purchase, from the entry's reference.
func (e *LedgerEntry) about() {
	_, about, _ := strings.Cut(e.RefID, "-")
	switch e.Kind {
	case "consume", "refund":
		e.JobID = Text(about)
	case "purchase":
		e.OrderID = Text(about)
	}
}

// ErrNoUser is the error for a user that does not exist.
var ErrNoUser = fault.Sentencef(fault.NotFound, "User not found")

// count runs a query that counts rows of an existing user.
func (r *Reports) count(ctx context.Context, rows, userID string) (n int64, err error) {
	err = r.db.QueryRow(ctx, `SELECT `+rows+` FROM users u WHERE u.id = $1 AND u.erasing_at IS NULL`, userID).Scan(&n)
	if db.IsNoRows(err) {
		return 0, ErrNoUser
	}
	if err != nil {
		return 0, fmt.Errorf("count rows of a user: %w", err)
	}
	return n, nil
}

// Page selects part of a list: Limit >= 1 rows after the first Offset >= 0.
type Page struct{ Limit, Offset int64 }

// ofUser returns a page of an existing user's rows and their total number. from is the query for all of them, starting
// at its FROM; $1 is the user.
func ofUser[T any](ctx context.Context, r *Reports, userID string, page Page,
	columns, from, order string) (rows []T, total int64, err error) {
	if total, err = r.count(ctx, `(SELECT COUNT(*) `+from+`)`, userID); err != nil {
		return nil, 0, err
	}
	rows, err = list[T](ctx, r.db, `SELECT `+columns+` `+from+` ORDER BY `+order+` LIMIT $2 OFFSET $3`, userID, page.Limit, page.Offset)
	return rows, total, err
}

// Ledger returns a page of a user's ledger, newest first, and how many entries there are in all. An unknown user is a
// 404.
func (r *Reports) Ledger(ctx context.Context, userID string, page Page) (entries []LedgerEntry, total int64, err error) {
	entries, total, err = ofUser[LedgerEntry](ctx, r, userID, page,
		`ref_id, kind, amount AS credits, created_at, CASE WHEN kind = 'reversal' THEN `+reversedOrder+` END AS order_id`,
		`FROM credit_ledger l WHERE user_id = $1`, `created_at DESC, ref_id DESC`)
	for i := range entries {
		entries[i].about()
	}
	return entries, total, err
}

// Purchase is something that a user bought.
type Purchase struct {
	Platform   string `json:"platform"`
	OrderID    Text   `json:"orderId"` // the store's number of the purchase
	ProductID  string `json:"productId"`
	Credits    int64  `json:"credits"`
	Owed       int64  `json:"owed"` // unsettled credits of a reversed purchase that were already spent
	CreatedAt  Time   `json:"createdAt"`
	ReversedAt Time   `json:"reversedAt"` // when the store refunded it
	BySupport  bool   `json:"bySupport"`  // support granted the credits by hand
	Refunded   int64  `json:"refunded"`   // credits of the share that the store has refunded
	Test       bool   `json:"test"`       // nobody paid the store
}

// Purchases returns a page of a user's purchases, newest first, and how many there are in all. An unknown user is a
// 404.
func (r *Reports) Purchases(ctx context.Context, userID string, page Page) (sold []Purchase, total int64, err error) {
	return ofUser[Purchase](ctx, r, userID, page,
		`platform, order_id, product_id, credits, owed, created_at, reversed_at, by_support, refunded, test`,
		`FROM purchases WHERE buyer_id = $1`, `created_at DESC, transaction_hash`)
}

// Order is the history of a store's order number.
type Order struct {
	// Users lists the users who presented it: first its buyer, then users who did not get its credits, the latest
	// first.
	Users  []string
	PaidAt Time // zero if it was not paid out
}

// FindOrder looks up a store's order number among all orders that were paid out or presented without success. Deleting
// an account leaves only the hash of the number.
func (r *Reports) FindOrder(ctx context.Context, number string) (o Order, err error) {
	number = strings.TrimSpace(number)
	if !searchable(number) {
		return o, nil
	}
	type presentation struct {
		UserID Text `json:"userId"`
		PaidAt Time `json:"paidAt"`
		At     Time `json:"presentedAt"`
	}
	presented, err := list[presentation](ctx, r.db, `SELECT * FROM (
			SELECT buyer_id AS user_id, created_at AS paid_at, created_at AS presented_at FROM purchases
			WHERE platform = 'platform_a' AND transaction_hash = $1 OR platform = 'platform_b' AND transaction_hash = $2
			UNION ALL SELECT user_id, NULL, MAX(created_at) FROM receipt_refusals WHERE order_id = $3 GROUP BY user_id
		) AS presented
		ORDER BY paid_at IS NULL, presented_at DESC`,
		credit.Order{Platform: credit.PlatformA, TransactionID: number}.Hash(),
		credit.Order{Platform: credit.PlatformB, TransactionID: number}.Hash(), number)
	for _, p := range presented {
		if id := string(p.UserID); id != "" && !slices.Contains(o.Users, id) {
			o.Users = append(o.Users, id)
		}
		if !p.PaidAt.IsZero() {
			o.PaidAt = p.PaidAt
		}
	}
	return o, err
}

// Refusal is an order whose receipt a user presented without getting its credits.
type Refusal struct {
	Platform  string `json:"platform"`
	OrderID   string `json:"orderId"`
	ProductID string `json:"productId"`
	Reason    string `json:"reason"` // of the last attempt
	Attempts  int64  `json:"attempts"`
	CreatedAt Time   `json:"createdAt"` // the last attempt
	PaidAt    Time   `json:"paidAt"`    // when the order was paid out after all
	Meaning   string `json:"meaning"`   // the reason as a sentence
	Command   Text   `json:"command"`   // what support can run; null if nothing helps
}

// explain sets Meaning and Command.
func (f *Refusal) explain(userID string) {
	verify := fmt.Sprintf("cutroom purchase verify %s %s --user %s", f.Platform, quoted(f.OrderID), userID)
	if f.Platform == credit.PlatformA {
		verify += " --receipt TOKEN"
	}
	show := Text("cutroom user show " + quoted(f.OrderID))
	switch f.Reason {
	case credit.ReasonUnanswered:
		f.Meaning, f.Command = "The store did not answer, or refused this service. The app presents the order again; "+
			"once the store answers, so can you.", Text(verify)
	case "pending":
		f.Meaning, f.Command = "The store has not been paid yet. The app presents the order again.", Text(verify)
	case "cancelled":
		f.Meaning = "The purchase was cancelled: it will never be paid."
	case "revoked":
		f.Meaning = "The store has refunded or revoked the purchase."
	case "other_account":
		f.Meaning, f.Command = "The order belongs to another account of this service, which must present it.", show
	case "mismatch":
		f.Meaning, f.Command = "Product, order, app or environment differ from what the store sold: "+
			"a bug, or a test build of the app.", Text(verify)
	case "test_purchase":
		f.Meaning = "A tester bought it and paid nothing; see IAP_PLATFORM_A_ALLOW_TEST and IAP_PLATFORM_B_ALLOW_TEST."
	default:
		f.Meaning, f.Command = "The store does not confirm the order. If the user can prove the purchase, grant its credits; "+
			"the order is then spent.",
			Text(fmt.Sprintf("cutroom credits grant %s CREDITS --reason REASON --order %s", userID, quoted(f.Platform+":"+f.OrderID)))
	}
	if !f.PaidAt.IsZero() {
		f.Meaning, f.Command = "The order was paid out: its buyer has the credits.", show
	}
}

// quoted quotes a word for a shell unless it needs no quotes. Clients choose the order numbers, so quoted puts the "--"
// that ends the flags in front of one that looks like a flag.
func quoted(word string) string {
	endOfFlags := ""
	if strings.HasPrefix(word, "-") {
		endOfFlags = "-- "
	}
	if word != "" && !strings.ContainsFunc(word, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("._:-", c)
	}) {
		return endOfFlags + word
	}
	return endOfFlags + "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Refusals returns a page of the orders that a user presented without success within 90 days, the latest attempt
// first, and how many there are in all. An unknown user is a 404.
func (r *Reports) Refusals(ctx context.Context, userID string, page Page) (refused []Refusal, total int64, err error) {
	refused, total, err = ofUser[Refusal](ctx, r, userID, page, `platform, order_id, product_id, reason, attempts, created_at,
			(SELECT MIN(p.created_at) FROM purchases p WHERE p.order_id = f.order_id AND p.platform = f.platform) AS paid_at`,
		`FROM receipt_refusals f WHERE user_id = $1`, `created_at DESC, platform, order_id, product_id`)
	for i := range refused {
		refused[i].explain(userID)
	}
	return refused, total, err
}

// Asset is an uploaded file that a user holds.
type Asset struct {
	AssetKey    string `json:"assetKey"`
	SizeBytes   int64  `json:"sizeBytes"`
	ContentType string `json:"contentType"`
	CreatedAt   Time   `json:"createdAt"`
	LastUsedAt  Time   `json:"lastUsedAt"`
}

// Assets returns a page of the assets that a user holds, newest first, and how many there are in all. An unknown user
// is a 404.
func (r *Reports) Assets(ctx context.Context, userID string, page Page) (held []Asset, total int64, err error) {
	return ofUser[Asset](ctx, r, userID, page, `h.asset_key, a.size_bytes, a.content_type, h.created_at, h.last_used_at`,
		`FROM asset_holders h JOIN assets a ON a.asset_key = h.asset_key WHERE h.user_id = $1 AND h.given_up_at IS NULL`,
		`h.created_at DESC, h.asset_key`)
}

// Job is everything that support can see of a job.
type Job struct {
	JobID            string          `json:"jobId"`
	JobType          string          `json:"jobType"`
	Status           string          `json:"status"`
	UserID           string          `json:"userId"`
	Email            Text            `json:"email"`
	Progress         int             `json:"progress"` // percent
	Attempts         int             `json:"attempts"`
	Replica          Text            `json:"replica"` // the one that works on it, or worked on it last
	SourceDurationMs int64           `json:"sourceDurationMs"`
	CreatedAt        Time            `json:"createdAt"`
	StartedAt        Time            `json:"startedAt"` // when a worker started it
	ProcessingAt     Time            `json:"processingAt"`
	ProviderDoneAt   Time            `json:"providerDoneAt"`
	FinishedAt       Time            `json:"finishedAt"`
	CollectedAt      Time            `json:"collectedAt"`
	ExpiresAt        Time            `json:"expiresAt"`
	DeletedAt        Time            `json:"deletedAt"` // when its owner deleted it; the owner no longer sees it
	Error            Text            `json:"error"`     // the message shown to the owner
	ErrorCode        Text            `json:"errorCode"`
	Cause            Text            `json:"cause"` // the failure as logged
	Trace            Text            `json:"trace"` // trace id; null unless the job's request was sampled
	Inputs           json.RawMessage `json:"inputs"`
	// Ledger has the job's charge, its refund and support's entry.
	Ledger []LedgerEntry `json:"ledger"`
}

// Job returns one job of any user. supportRef is the reference of support's ledger entry for it, if any. An unknown job
// is a 404.
func (r *Reports) Job(ctx context.Context, id, supportRef string) (Job, error) {
	found, err := list[jobRow](ctx, r.db, jobSQL, id)
	if err != nil {
		return Job{}, err
	}
	if len(found) == 0 {
		return Job{}, fault.Sentencef(fault.NotFound, "Job not found")
	}
	j := found[0].Job
	j.Inputs = rawJSON(found[0].Spec)
	if j.JobType != job.Render {
		if j.Inputs, err = json.Marshal(found[0].separationInput); err != nil {
			return Job{}, fmt.Errorf("encode a job's inputs: %w", err)
		}
	}
	j.Ledger, err = list[LedgerEntry](ctx, r.db, `SELECT ref_id, kind, amount AS credits, created_at FROM credit_ledger
		WHERE ref_id IN ($1, $2, $3) ORDER BY created_at, ref_id`, "consume-"+id, "refund-"+id, supportRef)
	for i := range j.Ledger {
		j.Ledger[i].about()
	}
	return j, err
}

// separationInput is the upload of a separation.
type separationInput struct {
	FileName  string `json:"fileName"`
	SizeBytes int64  `json:"sizeBytes"`
	Language  string `json:"language"`
	Credits   int64  `json:"credits"`
	ProjectID int64  `json:"projectId"` // the provider's; 0 before it has one
}

// jobRow is a job with the inputs of either kind.
type jobRow struct {
	Job
	separationInput
	Spec string `json:"spec"` // of a render
}

const jobSQL = `SELECT j.kind AS job_type, j.id AS job_id, j.state AS status, u.id AS user_id, u.email, j.progress, j.attempts,
		COALESCE(j.lease_owner, j.replica) AS replica, j.source_duration_ms, j.created_at, j.finished_at, j.deleted_at,
		j.error, j.error_code, j.failure_cause AS cause, SUBSTR(j.trace_parent, 4, 32) AS trace,
		CASE j.kind WHEN 'render' THEN j.started_at ELSE s.submitting_at END AS started_at,
		s.processing_at, s.provider_done_at, s.collected_at, r.expires_at, COALESCE(r.spec, '') AS spec,
		COALESCE(s.source_name, '') AS file_name, COALESCE(s.source_size_bytes, 0) AS size_bytes, COALESCE(s.language, '') AS language,
		COALESCE(s.credits, 0) AS credits, COALESCE(s.project_id, 0) AS project_id
	FROM jobs j JOIN users u ON u.id = j.user_id LEFT JOIN renders r ON r.job_id = j.id LEFT JOIN separations s ON s.job_id = j.id
	WHERE j.id = $1`

// FailedJob is a failed job that its owner has not deleted.
type FailedJob struct {
	JobID      string `json:"jobId"`
	JobType    string `json:"jobType"`
	UserID     string `json:"userId"`
	Attempts   int    `json:"attempts"`
	CreatedAt  Time   `json:"createdAt"`
	FinishedAt Time   `json:"finishedAt"`
	Error      Text   `json:"error"` // the message shown to the owner
	ErrorCode  Text   `json:"errorCode"`
}

// FailedJobWithCause is a failed job with what only operators may see.
type FailedJobWithCause struct {
	FailedJob
	Replica Text `json:"replica"` // the last one that worked on it
	Cause   Text `json:"cause"`
}

// recentFailures is the length of the list of failed jobs in the admin app.
const recentFailures = 200

// The columns of FailedJob, and the failed jobs since $1, newest first.
const (
	failedColumns = `id AS job_id, kind AS job_type, user_id, attempts, created_at, finished_at, error, error_code`
	failedJobs    = ` FROM jobs WHERE state = 'FAILED' AND deleted_at IS NULL AND finished_at >= $1
		ORDER BY finished_at DESC, id LIMIT $2`
)

// RecentFailures returns the newest failed jobs, at most 200 of them.
func (r *Reports) RecentFailures(ctx context.Context) ([]FailedJob, error) {
	return list[FailedJob](ctx, r.db, `SELECT `+failedColumns+failedJobs, 0, recentFailures)
}

// FailedJobs returns at most limit of the jobs that failed since a time, newest first.
func (r *Reports) FailedJobs(ctx context.Context, since time.Time, limit int) ([]FailedJobWithCause, error) {
	return list[FailedJobWithCause](ctx, r.db, `SELECT `+failedColumns+`, replica, failure_cause AS cause`+failedJobs,
		max(0, since.UnixMilli()), limit)
}

// rawJSON returns a stored JSON text, or null for "".
func rawJSON(text string) json.RawMessage { return json.RawMessage(cmp.Or(text, "null")) }
