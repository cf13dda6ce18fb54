package admin

import (
	"context"

	"cutroom/internal/work/job"
)

// maxActive bounds the list of active jobs. The status breakdown counts a longer queue.
const maxActive = 1000

// ActiveJob is a job that has neither finished nor failed.
type ActiveJob struct {
	JobType          string `json:"jobType"`
	JobID            string `json:"jobId"`
	Status           string `json:"status"`
	UserID           string `json:"userId"`
	UserEmail        Text   `json:"userEmail"`
	SourceDurationMs int64  `json:"sourceDurationMs"`
	CreatedAt        Time   `json:"createdAt"`
	Progress         int    `json:"progress"` // percent, 0 to 100
}

// ActiveJobs returns the jobs in progress, the longest waiting first, at most 1000 of them.
func (r *Reports) ActiveJobs(ctx context.Context) ([]ActiveJob, error) {
	return list[ActiveJob](ctx, r.db, `SELECT j.kind AS job_type, j.id AS job_id, j.state AS status, u.id AS user_id, u.email AS user_email,
			j.source_duration_ms, j.created_at, j.progress
		FROM (`+unfinished(`*`)+`) AS j JOIN users u ON u.id = j.user_id AND u.erasing_at IS NULL
		ORDER BY j.created_at, j.id LIMIT $1`, maxActive)
}

// Breakdown counts the jobs of one type by outcome.
type Breakdown struct {
	JobType    string `json:"jobType"`
	Total      int64  `json:"total"`
	Succeeded  int64  `json:"succeeded"`
	Failed     int64  `json:"failed"`
	InProgress int64  `json:"inProgress"`
}

// StatusBreakdown returns the outcomes of all renders and of all separations, in this order. A separation whose
// stems were removed still counts as succeeded.
func (r *Reports) StatusBreakdown(ctx context.Context) ([]Breakdown, error) {
	return list[Breakdown](ctx, r.db, `SELECT k.kind AS job_type, `+sum("jobs")+` AS total,
			`+sum("CASE WHEN state IN ('COMPLETED', 'READY', 'DISPOSED') THEN jobs END")+` AS succeeded,
			`+sum("CASE state WHEN 'FAILED' THEN jobs END")+` AS failed,
			`+sum("CASE WHEN state NOT IN ('COMPLETED', 'READY', 'DISPOSED', 'FAILED') THEN jobs END")+` AS in_progress
		FROM (SELECT 'render' AS kind UNION ALL SELECT 'separation') AS k LEFT JOIN `+allJobs+` ON totals.kind = k.kind
		GROUP BY k.kind ORDER BY k.kind`)
}

// UserJob is a job in its owner's history.
type UserJob struct {
	JobID            string `json:"jobId"`
	JobType          string `json:"jobType"`
	Status           string `json:"status"`
	SourceDurationMs int64  `json:"sourceDurationMs"`
	CreatedAt        Time   `json:"createdAt"`
	FinishedAt       Time   `json:"finishedAt"` // zero while the job is in progress
	Error            Text   `json:"error"`      // as shown to the client; "" unless the job failed
}

// UserJobs returns a page of a user's renders and separations, newest first, and how many there are in all. An unknown
// user is a 404.
func (r *Reports) UserJobs(ctx context.Context, userID string, page Page) (jobs []UserJob, total int64, err error) {
	return ofUser[UserJob](ctx, r, userID, page,
		`id AS job_id, kind AS job_type, state AS status, source_duration_ms, created_at, finished_at, error`,
		`FROM jobs WHERE user_id = $1`, `created_at DESC, id`)
}

// unfinished selects columns of the unfinished jobs. It has a branch for each partial index on these few jobs; one
// condition on all their states would read the whole history.
func unfinished(columns string) string {
	return `SELECT ` + columns + ` FROM jobs WHERE ` + job.Waiting + ` UNION ALL SELECT ` + columns + ` FROM jobs WHERE ` + job.AtWork
}

// allJobs is the table expression for reports on all jobs. job_days counts the ended ones by day, state and bucket,
// including those whose rows have since been deleted. So the totals never fall, and the result grows with the number of
// days, not of jobs.
var allJobs = `(SELECT kind, day, state, bucket, jobs, source_duration_ms FROM job_days UNION ALL ` +
	unfinished(`kind, created_at / 86400000, state, `+job.Bucket("source_duration_ms")+`, 1, source_duration_ms`) + `) AS totals`
