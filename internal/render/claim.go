package render

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"cutroom/internal/db"
	"cutroom/internal/job"
	"cutroom/internal/user"
)

// queueLock serialises the claims of all replicas. Whose turn it is depends on the
// running jobs, so two claims at once would both pick the same owner.
const queueLock = "render-queue"

// requeueDead puts the renders back into the queue whose workers died. It runs before each
// claim, so that the table of turns counts only running jobs.
func (s *Service) requeueDead(ctx context.Context) error {
	ids, err := s.db.ExecTexts(db.Prompt(ctx, job.TTL/3), `UPDATE render_jobs SET state = 'PENDING', replica = COALESCE(lease_owner, replica),
			lease_owner = NULL, lease_until = NULL, fence = fence + 1`+job.NoteLostWorker+`
		WHERE state = 'PROCESSING' AND COALESCE(lease_until, 0) < now_ms() AND attempts < $1 AND `+user.Stays("user_id")+`
		RETURNING id`, maxAttempts)
	if err != nil {
		return fmt.Errorf("requeue renders of dead workers: %w", err)
	}
	for _, id := range ids {
		s.log.Info("render requeued, because its worker died", "job", id)
		err = errors.Join(err, s.db.Notify(ctx, job.Topic(id)))
	}
	return err
}

// oldestJob selects the oldest job of owner t that waits, whose pause is over, and that meets condition. suffix ends the statement. The list of states repeats the condition of the index
// render_open_by_user word for word, so that both databases use it. Without the bound by the owner's oldest job,
// PostgreSQL may choose an index that holds all ended jobs.
func oldestJob(condition, suffix string) string {
	return `(SELECT j.id FROM render_jobs j WHERE j.state IN ('PENDING', 'PROCESSING') AND j.state = 'PENDING'
		AND j.user_id = t.user_id AND (j.created_at, j.id) >= (t.next_created_at, t.next_job_id)
		AND COALESCE(j.lease_until, 0) < now_ms()` + condition + `
		ORDER BY j.created_at, j.id LIMIT 1` + suffix + `)`
}

// inLine ends a query that reads the first owners t in line for whom job finds one. ORDER BY and LIMIT must
// be in the same SELECT. Otherwise PostgreSQL may find the jobs of all owners first and sort them afterwards.
func inLine(job string, limit int) string {
	return fmt.Sprintf(`FROM render_turns t WHERE t.next_job_id IS NOT NULL AND %s IS NOT NULL AND %s
		ORDER BY t.processing, t.last_started_at, t.next_created_at, t.next_job_id LIMIT %d`, job, user.Stays("t.user_id"), limit)
}

// waitingSQL returns 1 if any job waits, else 0.
var waitingSQL = `SELECT COALESCE((SELECT 1 ` + inLine(oldestJob("", ""), 1) + `), 0)`

// claimSQL claims the job whose turn it is, for replica $3 and for $4 milliseconds. The owner with the fewest
// running jobs comes first; if several have equally few, the one whose last job started longest ago; then the one
// whose job has waited longest. The job needs at most $1 bytes of disk. No owner gets more than $2 slots while
// another owner waits. However many owners wait, the claim reads the first two.
func claimSQL(d *db.DB) string {
	oldest := oldestJob(` AND COALESCE(j.needs_bytes, 0) <= $1`, d.SkipLockedOf("j"))
	return `WITH line AS MATERIALIZED (SELECT t.*, ` + oldest + ` AS job_id ` + inLine(oldest, 2) + `)
		UPDATE render_jobs SET state = 'PROCESSING', started_at = COALESCE(started_at, now_ms()),
			lease_owner = $3, lease_until = now_ms() + $4, fence = fence + 1, short_since = NULL
		WHERE state = 'PENDING' AND id = (SELECT job_id FROM line WHERE processing < $2 OR (SELECT COUNT(*) FROM line) = 1
			ORDER BY processing, last_started_at, next_created_at, next_job_id LIMIT 1)
		RETURNING id, user_id, spec, attempts + 1, fence, progress, now_ms() - started_at, now_ms() - created_at`
}

// hasWaitingJob reports whether a job waits.
func (s *Service) hasWaitingJob(ctx context.Context) (bool, error) {
	var n int
	if err := s.db.QueryRow(ctx, waitingSQL).Scan(&n); err != nil {
		return false, fmt.Errorf("look for waiting render jobs: %w", err)
	}
	return n == 1, nil
}

// fleet caches the number of slots of all replicas. A claim may use a count that is some
// seconds old.
type fleet struct {
	slots, counted atomic.Int64 // time of the count, Unix nanoseconds
}

// share returns how many slots one owner may hold while another owner waits: half of all
// replicas' slots, and at least one.
func (s *Service) share(ctx context.Context) (int, error) {
	if now := time.Now().UnixNano(); now-s.fleet.counted.Load() > int64(job.ReplicaTTL/3) {
		n, _, err := job.Live(ctx, s.db)
		if err != nil {
			return 0, err
		}
		s.fleet.slots.Store(n)
		s.fleet.counted.Store(now)
	}
	return max(1, max(int(s.fleet.slots.Load()), s.Slots.Size())/2), nil
}

// claim claims the job whose turn it is.
func (s *Service) claim(ctx context.Context) (j claimedJob, ok bool, err error) {
	// A frozen database answers only after every lease has expired, so do not wait for
	// it.
	prompt := db.Prompt(ctx, job.TTL/3)
	share, err := s.share(prompt)
	if err != nil {
		return j, false, err
	}
	// Most calls find no job. Find that out without the lock.
	if waiting, err := s.hasWaitingJob(prompt); err != nil || !waiting {
		return j, false, err
	}
	// CanWork logs the reason.
	freeBytes, unable := s.CanWork(ctx)
	if unable != nil {
		return j, false, nil
	}
	var encoded string
	var runMs, ageMs int64
	// Do not cut a claim short: its outcome would be unknown.
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), job.TTL)
	defer cancel()
	err = s.db.ExecRowLocked(call, queueLock, claimSQL(s.db), []any{freeBytes, share, s.Renewer.Owner(), job.TTL.Milliseconds()},
		&j.ID, &j.UserID, &encoded, &j.Attempts, &j.Fence, &j.Progress, &runMs, &ageMs)
	if db.IsNoRows(err) {
		return j, false, nil
	}
	if err != nil {
		return j, false, fmt.Errorf("claim render job: %w", err)
	}
	j.Deadline = time.Now().Add(s.Timeout - time.Duration(runMs)*time.Millisecond)
	j.Table = s.jobs.Name
	s.jobs.AttemptLog(j.Claim).Info("render claimed", "ageMs", ageMs)
	if j.Spec, err = decodeSpec(encoded); err != nil {
		_, ferr := s.fail(ctx, j, errInternal, err)
		return j, false, errors.Join(err, ferr)
	}
	return j, true, nil
}
