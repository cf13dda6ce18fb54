package jobtest

import (
	"strings"
	"testing"

	"cutroom/internal/base/db"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/work/job"
)

// User creates a user with credits and the ledger entry for them.
func User(t testing.TB, d *db.DB, id string, credits int64) {
	t.Helper()
	dbtest.Exec(t, d, `INSERT INTO users (id, provider, provider_sub, created_at, last_active_at)
		VALUES ($1, 'provider_a', $1, now_ms(), now_ms())`, id)
	dbtest.Exec(t, d, `INSERT INTO credit_balances (user_id, balance) VALUES ($1, $2)`, id, credits)
	dbtest.Exec(t, d, `INSERT INTO credit_ledger (ref_id, user_id, kind, amount, created_at)
		VALUES ($1, $2, 'signup', $3, now_ms())`, "signup-"+id, id, credits)
}

// Insert writes the rows of a job as they are in the given state, without the transitions that lead there. The prefix
// of the id determines the kind.
func Insert(t testing.TB, d *db.DB, id, userID, state string, createdMs, sourceMs int64) {
	t.Helper()
	kind, details := "render", `INSERT INTO renders (job_id, spec, output_kind) VALUES ($1, '{}', 'video')`
	if strings.HasPrefix(id, "sep-") {
		kind, details = "separation", `INSERT INTO separations (job_id, source_key, source_name, source_size_bytes, language, credits)
			VALUES ($1, '', '', 1, 'auto', 1)`
	}
	dbtest.Exec(t, d, `INSERT INTO jobs (id, kind, user_id, state, source_duration_ms, created_at, finished_at)
		VALUES ($1, $2, $3, $4, $5, $6, CASE WHEN $7 THEN CAST($6 AS BIGINT) END)`,
		id, kind, userID, state, sourceMs, createdMs, strings.Contains(ended, "'"+state+"'"))
	dbtest.Exec(t, d, details, id)
	dbtest.Exec(t, d, `INSERT INTO job_days (kind, day, state, bucket, jobs, source_duration_ms) `+counted+` AND id = $1
		ON CONFLICT (kind, day, state, bucket) DO UPDATE SET jobs = job_days.jobs + 1,
			source_duration_ms = job_days.source_duration_ms + excluded.source_duration_ms`, id)
}

const ended = `('COMPLETED', 'READY', 'DISPOSED', 'FAILED')`

// counted selects the ended jobs as rows of job_days.
var counted = `SELECT kind, created_at / 86400000 AS day, state, ` + job.Bucket("source_duration_ms") + ` AS bucket,
	1 AS jobs, source_duration_ms
	FROM jobs WHERE state IN ` + ended

// Totals is the query for what job_days should have: the ended jobs, counted again.
var Totals = `SELECT kind, day, state, bucket, CAST(SUM(jobs) AS BIGINT) AS jobs,
	CAST(SUM(source_duration_ms) AS BIGINT) AS source_duration_ms
	FROM (` + counted + `) AS counted GROUP BY kind, day, state, bucket`
