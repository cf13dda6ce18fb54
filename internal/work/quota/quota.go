// Package quota bounds how many jobs one account may have waiting and how many bytes it may store. Other packages count
// their rows in SQL; this one adds the counts up and compares.
package quota

import (
	"context"
	"fmt"
	"strings"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
)

// Usage is what an account has. In a limit, 0 means unlimited.
type Usage struct {
	WaitingJobs int64 // not yet claimed
	StoredBytes int64
}

// Report is what an account has and may have; a maximum of nil means no limit.
type Report struct {
	StoredBytes    int64  `json:"storedBytes"`
	MaxStoredBytes *int64 `json:"maxStoredBytes"`
	WaitingJobs    int64  `json:"waitingJobs"`
	MaxWaitingJobs *int64 `json:"maxWaitingJobs"`
}

// Limits are the limits of every account. A nil *Limits limits nothing.
type Limits struct {
	Max Usage
	// Query reads the Usage of the user $1.
	Query string
}

// New returns limits. waiting and stored are SQL expressions that count the waiting jobs of the user $1, and the user's
// bytes, which are added up.
func New(maximum Usage, waiting string, stored ...string) *Limits {
	return &Limits{Max: maximum, Query: `SELECT ` + waiting + `, ` + strings.Join(stored, " + ")}
}

// Bytes is the SQL expression that adds up a column of sizes.
func Bytes(column, from string) string {
	return `(SELECT CAST(COALESCE(SUM(` + column + `), 0) AS BIGINT) FROM ` + from + `)`
}

// Usage reads what an account has.
func (l *Limits) Usage(ctx context.Context, q db.Querier, userID string) (u Usage, err error) {
	if err := q.QueryRow(ctx, l.Query, userID).Scan(&u.WaitingJobs, &u.StoredBytes); err != nil {
		return u, fmt.Errorf("read the usage of an account: %w", err)
	}
	return u, nil
}

// Report reads what an account has, together with its limits.
func (l *Limits) Report(ctx context.Context, q db.Querier, userID string) (Report, error) {
	has, err := l.Usage(ctx, q, userID)
	r := Report{StoredBytes: has.StoredBytes, WaitingJobs: has.WaitingJobs}
	if l.Max.StoredBytes > 0 {
		r.MaxStoredBytes = &l.Max.StoredBytes
	}
	if l.Max.WaitingJobs > 0 {
		r.MaxWaitingJobs = &l.Max.WaitingJobs
	}
	return r, err
}

// retryAfter is when the account's queue may have become shorter.
const retryAfter = 30 * time.Second

// CheckStored is Check for a request that submits no job.
func (l *Limits) CheckStored(ctx context.Context, q db.Querier, userID string, bytes int64) error {
	if l == nil {
		return nil
	}
	stored := *l
	stored.Max.WaitingJobs = 0
	return stored.Check(ctx, q, userID, Usage{StoredBytes: bytes})
}

// Check refuses a request that would exceed an account's limits by adding more. It is exact in a transaction that has
// locked the user's row and written the request's rows; more is then zero.
func (l *Limits) Check(ctx context.Context, q db.Querier, userID string, more Usage) error {
	if l == nil || l.Max == (Usage{}) {
		return nil
	}
	have, err := l.Usage(ctx, q, userID)
	switch {
	case err != nil:
		return err
	case l.Max.WaitingJobs > 0 && have.WaitingJobs+more.WaitingJobs > l.Max.WaitingJobs:
		return &fault.Error{Kind: fault.RateLimited, Code: "too_many_jobs", RetryAfter: retryAfter,
			Detail: fmt.Sprintf("at most %d jobs of an account may wait", l.Max.WaitingJobs)}
	case l.Max.StoredBytes > 0 && have.StoredBytes+more.StoredBytes > l.Max.StoredBytes:
		return fault.New(fault.Forbidden, "storage_full").
			WithDetail("the account may store %d bytes; delete jobs or assets first", l.Max.StoredBytes)
	}
	return nil
}
