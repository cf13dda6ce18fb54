package admin

import (
	"context"
	"fmt"

	"cutroom/internal/db"
)

// openJobs is the jobs that have not ended, each a change of 1. There is one
// branch for each partial index over these few; a condition on all states would
// read the whole history.
const openJobs = `SELECT 'render' AS job_type, created_at, state, source_duration_ms, 1 AS jobs FROM render_jobs WHERE state = 'PENDING'
	UNION ALL SELECT 'render', created_at, state, source_duration_ms, 1 FROM render_jobs WHERE state = 'PROCESSING'
	UNION ALL SELECT 'separation', created_at, state, source_duration_ms, 1 FROM separation_jobs WHERE state = 'QUEUED'
	UNION ALL SELECT 'separation', created_at, state, source_duration_ms, 1 FROM separation_jobs WHERE state IN ('SUBMITTING', 'PROCESSING')`

// addUp makes columns of job_days of those of job_changes. The buckets are those
// of DurationHistogram.
const addUp = `job_type, created_at / 86400000 AS day, state, CASE WHEN source_duration_ms < 60000 THEN 0
	WHEN source_duration_ms < 300000 THEN 1 WHEN source_duration_ms < 900000 THEN 2
	WHEN source_duration_ms < 3600000 THEN 3 ELSE 4 END AS bucket,
	jobs, jobs * source_duration_ms AS source_duration_ms`

// allJobs is what reports on all jobs read: jobs that have ended are counted by
// day, state and bucket in job_days, by triggers that see every way in which one
// ends or goes. It is exact at every moment, and grows with the days and not with
// the jobs.
const allJobs = `(SELECT job_type, day, state, bucket, jobs, source_duration_ms FROM job_days
	UNION ALL SELECT ` + addUp + ` FROM (SELECT job_type, created_at, state, source_duration_ms, jobs FROM job_changes
		UNION ALL ` + openJobs + `) AS changes) AS jobs`

// group is a row of job_days, without what it counts.
type group struct {
	jobType string
	day     int64
	state   string
	bucket  int
}

// AddUpJobs moves what has changed into the totals by day. It changes no report;
// any number of replicas may do it at once.
func AddUpJobs(ctx context.Context, d *db.DB) error {
	err := d.InTx(ctx, func(tx *db.Tx) error {
		// Two that add to the same rows in another order would wait for each other.
		if err := tx.Lock(ctx, "job-days"); err != nil {
			return err
		}
		sums, err := takeChanges(ctx, tx)
		if err != nil {
			return err
		}
		for g, sum := range sums {
			if _, err := tx.Exec(ctx, `INSERT INTO job_days (job_type, day, state, bucket, jobs, source_duration_ms)
				VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (job_type, day, state, bucket) DO UPDATE
				SET jobs = job_days.jobs + excluded.jobs, source_duration_ms = job_days.source_duration_ms + excluded.source_duration_ms`,
				g.jobType, g.day, g.state, g.bucket, sum[0], sum[1]); err != nil {
				return err
			}
		}
		if len(sums) > 0 {
			_, err = tx.Exec(ctx, `DELETE FROM job_days WHERE jobs = 0`)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("add up jobs: %w", err)
	}
	return nil
}

// takeChanges removes what has changed and returns its sums: jobs, and the
// duration of their sources in milliseconds.
func takeChanges(ctx context.Context, tx *db.Tx) (map[group][2]int64, error) {
	sums := map[group][2]int64{}
	err := db.Each(ctx, tx, func(rows *db.Rows) error {
		var g group
		var jobs, durationMs int64
		err := rows.Scan(&g.jobType, &g.day, &g.state, &g.bucket, &jobs, &durationMs)
		sums[g] = [2]int64{sums[g][0] + jobs, sums[g][1] + durationMs}
		return err
	}, `DELETE FROM job_changes RETURNING `+addUp)
	return sums, err
}
