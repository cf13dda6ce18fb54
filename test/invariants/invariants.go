// Package invariants lists what must hold in the database whatever happened to the service, as queries that must return
// no row. The long tests and the simulation run them after their faults.
package invariants

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/jobtest"
	"cutroom/internal/work/job"
)

// rule is an invariant. Its query selects the ids of the rows that break it.
type rule struct{ name, query string }

// atRest holds when every job has ended.
var atRest = []rule{
	{"balance that is negative or not the sum of the ledger", `SELECT u.id FROM users u LEFT JOIN credit_balances b ON b.user_id = u.id
		WHERE COALESCE(b.balance, 0) < 0
			OR COALESCE(b.balance, 0) <> COALESCE((SELECT SUM(amount) FROM credit_ledger l WHERE l.user_id = u.id), 0)`},
	{"separation without its charge", `SELECT j.id FROM jobs j JOIN separations s ON s.job_id = j.id
			LEFT JOIN credit_ledger c ON c.ref_id = 'consume-' || j.id
		WHERE c.amount IS NULL OR c.amount <> -s.credits OR c.user_id <> j.user_id`},
	{"charge without its separation", `SELECT c.ref_id FROM credit_ledger c LEFT JOIN separations s ON 'consume-' || s.job_id = c.ref_id
		WHERE c.kind = 'consume' AND s.job_id IS NULL`},
	// A job that its owner cancelled after the provider was paid is not refunded.
	{"failed separation without its refund", `SELECT j.id FROM jobs j JOIN separations s ON s.job_id = j.id
		LEFT JOIN credit_ledger r ON r.ref_id = 'refund-' || j.id AND r.user_id = j.user_id AND r.amount = s.credits
		WHERE j.state = 'FAILED' AND (j.deleted_at IS NULL OR j.asked_at IS NULL) AND r.ref_id IS NULL`},
	{"refund of a separation that did not fail", `SELECT r.ref_id FROM credit_ledger r
		LEFT JOIN jobs j ON 'refund-' || j.id = r.ref_id AND j.state = 'FAILED'
		WHERE r.kind = 'refund' AND j.id IS NULL`},
	{"READY separation without stems", `SELECT j.id FROM jobs j WHERE j.state = 'READY'
		AND NOT EXISTS (SELECT 1 FROM separation_stems s WHERE s.job_id = j.id AND s.stem_id = 'voice_all')`},
	{"failed job without a reason for its owner", `SELECT id FROM jobs WHERE state = 'FAILED' AND COALESCE(error, '') = ''`},
	{"job that ended with a lease", `SELECT id FROM jobs WHERE lease_owner IS NOT NULL OR lease_until IS NOT NULL`},
	{"job without the columns of its kind", `SELECT id FROM jobs
		WHERE NOT EXISTS (SELECT 1 FROM separations WHERE job_id = id AND kind = 'separation')
		AND NOT EXISTS (SELECT 1 FROM renders WHERE job_id = id AND kind = 'render')`},
	{"render that keeps a request that nobody needs", `SELECT id FROM jobs JOIN renders ON job_id = id
		WHERE spec <> '' AND (state <> 'FAILED' OR deleted_at IS NOT NULL)`},
	{"held object of a job that has ended", `SELECT job_id FROM held_objects`},
	{"total of a day that counts fewer than its jobs", totals("< 0")}, // it also counts jobs that were deleted
	turns,
}

// totals selects the days whose totals differ from a recount of their jobs in the given way.
func totals(differ string) string {
	return `SELECT day || ' ' || state FROM (SELECT kind, day, state, bucket, jobs, source_duration_ms FROM job_days
			UNION ALL SELECT kind, day, state, bucket, -jobs, -source_duration_ms FROM (` + jobtest.Totals + `) AS recount) AS differences
		GROUP BY kind, day, state, bucket HAVING SUM(jobs) ` + differ + ` OR SUM(source_duration_ms) ` + differ
}

// turns holds at any time.
var turns = rule{"turn that is not a recount of its account's renders", `SELECT user_id FROM (
		SELECT u.id AS user_id, t.processing, t.last_started_at, t.next_job_id,
			(SELECT COUNT(*) FROM jobs j WHERE j.user_id = u.id AND j.kind = 'render' AND j.state = 'PROCESSING') AS at_work,
			(SELECT MAX(started_at) FROM jobs j WHERE j.user_id = u.id AND j.kind = 'render') AS started_at,
			(SELECT id FROM jobs j WHERE j.user_id = u.id AND j.kind = 'render' AND ` + job.Waiting + ` ORDER BY created_at, id LIMIT 1) AS next_id
		FROM users u LEFT JOIN render_turns t ON t.user_id = u.id) AS turns
	WHERE COALESCE(processing, 0) <> at_work OR COALESCE(last_started_at, 0) < COALESCE(started_at, 0)
		OR COALESCE(next_job_id, '') <> COALESCE(next_id, '')`}

// Active counts the jobs that have not ended.
func Active(ctx context.Context, d *db.DB) (n int, err error) {
	err = d.QueryRow(ctx, `SELECT COUNT(*) FROM jobs WHERE `+job.Waiting+` OR `+job.AtWork).Scan(&n)
	return n, err
}

// Wait waits until every job has ended.
func Wait(t testing.TB, d *db.DB, limit time.Duration) {
	t.Helper()
	left := 0
	apitest.Eventually(t, limit, func() bool {
		var err error
		left, err = Active(t.Context(), d)
		return err == nil && left == 0
	}, func() string { return fmt.Sprintf("%d jobs have not ended", left) })
}

func (r rule) broken(ctx context.Context, d *db.DB) string {
	ids, err := db.Texts(d.Query(ctx, r.query))
	if err != nil {
		return fmt.Sprintf("%s: %v", r.name, err)
	}
	if len(ids) > 0 {
		return fmt.Sprintf("%d times a %s: %s", len(ids), r.name, strings.Join(ids[:min(len(ids), 5)], " "))
	}
	return ""
}

// Totals describes how the totals of days differ from the jobs if none was ever deleted, or returns "".
func Totals(ctx context.Context, d *db.DB) string {
	return rule{"total of a day that is not a recount of its jobs", totals("<> 0")}.broken(ctx, d)
}

// Turns describes how the table of turns differs from the jobs, or returns "".
func Turns(ctx context.Context, d *db.DB) string { return turns.broken(ctx, d) }

// Broken describes each invariant that the database at rest breaks.
func Broken(ctx context.Context, d *db.DB) (broken []string) {
	for _, r := range atRest {
		if what := r.broken(ctx, d); what != "" {
			broken = append(broken, what)
		}
	}
	return broken
}

// Check fails the test for each invariant that the database at rest breaks.
func Check(t testing.TB, d *db.DB) {
	t.Helper()
	for _, what := range Broken(t.Context(), d) {
		t.Error(what)
	}
}

// PaidOnce fails the test for each job that the provider was paid for more than once, by the titles of its projects.
func PaidOnce(t testing.TB, titles []string) {
	t.Helper()
	paid := map[string]bool{}
	for _, title := range titles {
		if paid[title] {
			t.Errorf("the provider was paid more than once for %s", title)
		}
		paid[title] = true
	}
}
