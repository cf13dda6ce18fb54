package admin

import (
	"context"
	"fmt"

	"cutroom/internal/db"
)

// openJobs lists the unfinished jobs, each as a change of 1. It has one branch for each partial index on these
// few jobs; a condition on all states would read the whole history.
const openJobs = `SELECT 'render' AS job_type, created_at, state, source_duration_ms, 1 AS jobs FROM render_jobs WHERE state = 'PENDING'
	UNION ALL SELECT 'render', created_at, state, source_duration_ms, 1 FROM render_jobs WHERE state = 'PROCESSING'
	UNION ALL SELECT 'separation', created_at, state, source_duration_ms, 1 FROM separation_jobs WHERE state = 'QUEUED'
	UNION ALL SELECT 'separation', created_at, state, source_duration_ms, 1 FROM separation_jobs WHERE state IN ('SUBMITTING', 'PROCESSING')`

// addUp converts columns of job_changes to columns of job_days, with the buckets of
// DurationHistogram.
const addUp = `job_type, created_at / 86400000 AS day, state, CASE WHEN source_duration_ms < 60000 THEN 0
	WHEN source_duration_ms < 300000 THEN 1 WHEN source_duration_ms < 900000 THEN 2
	WHEN source_duration_ms < 3600000 THEN 3 ELSE 4 END AS bucket,
	jobs, jobs * source_duration_ms AS source_duration_ms`

// allJobs is the table expression for reports on all jobs. Triggers count every job that ends or is deleted in
// job_days, by day, state and bucket. The result is always exact, and its size grows with the number of days,
// not of jobs.
const allJobs = `(SELECT job_type, day, state, bucket, jobs, source_duration_ms FROM job_days
	UNION ALL SELECT ` + addUp + ` FROM (SELECT job_type, created_at, state, source_duration_ms, jobs FROM job_changes
		UNION ALL ` + openJobs + `) AS changes) AS jobs`

// group is the key of a row of job_days.
type group struct {
	jobType string
	day     int64
	state   string
	bucket  int
}

// AddUpJobs adds the changes to the totals by day. It does not change any report, and any number of replicas
// may run it at once.
func AddUpJobs(ctx context.Context, d *db.DB) error {
	err := d.InTx(ctx, func(tx *db.Tx) error {
		// Always add in the same order, otherwise two replicas could deadlock.
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

// takeChanges deletes all changes and returns their sums: jobs, and the duration of their sources in
// milliseconds.
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
