// Package invariants lists what the database must satisfy whatever happened to the service: which queries return
// no row. The long tests run them after their faults.
package invariants

import (
	"context"
	"strings"
	"testing"

	"cutroom/internal/db"
)

// AtRest holds when every job has ended. Each query selects the ids of the rows that break the rule.
var AtRest = []struct{ Name, Query string }{
	{"balance that is negative or not the sum of the ledger", `SELECT u.id FROM users u LEFT JOIN credit_balances b ON b.user_id = u.id
		WHERE COALESCE(b.balance, 0) < 0
			OR COALESCE(b.balance, 0) <> COALESCE((SELECT SUM(amount) FROM credit_ledger l WHERE l.user_id = u.id), 0)`},
	{"separation without its charge", `SELECT j.id FROM separation_jobs j LEFT JOIN credit_ledger c ON c.ref_id = 'consume-' || j.id
		WHERE c.amount IS NULL OR c.amount <> -j.credits OR c.user_id <> j.user_id`},
	{"charge without its separation", `SELECT c.ref_id FROM credit_ledger c LEFT JOIN separation_jobs j ON 'consume-' || j.id = c.ref_id
		WHERE c.kind = 'consume' AND j.id IS NULL`},
	// A job that its owner cancelled after the provider was paid is not refunded.
	{"failed separation without its refund", `SELECT j.id FROM separation_jobs j
		LEFT JOIN credit_ledger r ON r.ref_id = 'refund-' || j.id AND r.user_id = j.user_id AND r.amount = j.credits
		WHERE j.state = 'FAILED' AND (j.deleted_at IS NULL OR j.submit_intent_at IS NULL) AND r.ref_id IS NULL`},
	{"refund of a separation that did not fail", `SELECT r.ref_id FROM credit_ledger r
		LEFT JOIN separation_jobs j ON 'refund-' || j.id = r.ref_id AND j.state = 'FAILED'
		WHERE r.kind = 'refund' AND j.id IS NULL`},
	{"READY separation without stems", `SELECT j.id FROM separation_jobs j WHERE j.state = 'READY'
		AND NOT EXISTS (SELECT 1 FROM separation_stems s WHERE s.job_id = j.id AND s.stem_id = 'voice_all')`},
	{"failed job without a reason for its owner", `SELECT id FROM separation_jobs WHERE state = 'FAILED' AND COALESCE(error, '') = ''
		UNION ALL SELECT id FROM render_jobs WHERE state = 'FAILED' AND COALESCE(error, '') = ''`},
	{"job that ended with a lease", `SELECT id FROM separation_jobs WHERE lease_owner IS NOT NULL OR lease_until IS NOT NULL
		UNION ALL SELECT id FROM render_jobs WHERE lease_owner IS NOT NULL`},
}

// Active counts the jobs that have not ended.
func Active(ctx context.Context, d *db.DB) (n int, err error) {
	err = d.QueryRow(ctx, `SELECT (SELECT COUNT(*) FROM separation_jobs WHERE state IN ('QUEUED', 'SUBMITTING', 'PROCESSING'))
		+ (SELECT COUNT(*) FROM render_jobs WHERE state IN ('PENDING', 'PROCESSING'))`).Scan(&n)
	return n, err
}

// Check fails the test for each invariant that the database at rest breaks.
func Check(t testing.TB, d *db.DB) {
	t.Helper()
	for _, rule := range AtRest {
		ids, err := db.Texts(d.Query(t.Context(), rule.Query))
		if err != nil {
			t.Errorf("%s: %v", rule.Name, err)
		}
		if len(ids) > 0 {
			t.Errorf("%d times a %s: %s", len(ids), rule.Name, strings.Join(ids[:min(len(ids), 5)], " "))
		}
	}
}
