package admin

import "cutroom/internal/job"

// unfinished selects columns of the unfinished jobs. It has a branch for each partial index on these few jobs; one
// condition on all their states would read the whole history.
func unfinished(columns string) string {
	return `SELECT ` + columns + ` FROM jobs WHERE ` + job.Waiting + ` UNION ALL SELECT ` + columns + ` FROM jobs WHERE ` + job.AtWork
}

// allJobs is the table expression for reports on all jobs. job_days counts the ended ones by day, state and bucket; the
// transaction that ends a job or deletes its row corrects the count. So the result is always exact, and its size grows
// with the number of days, not of jobs.
var allJobs = `(SELECT kind, day, state, bucket, jobs, source_duration_ms FROM job_days UNION ALL ` +
	unfinished(`kind, created_at / 86400000, state, `+job.Bucket("source_duration_ms")+`, 1, source_duration_ms`) + `) AS totals`
