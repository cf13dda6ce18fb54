// The queue of renders: whose turn it is, and the claim of the next job. The accounts take turns; within an account the
// oldest job goes first.

package render

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/work/job"
	"cutroom/internal/work/user"
)

// queueLock serialises the claims of all replicas. Whose turn it is depends on the running jobs, so two claims at once
// would both pick the same owner.
const queueLock = "render-queue"

// requeueDead requeues the renders whose workers died, unless that was their last attempt. It runs before each claim,
// so that the table of turns counts only running jobs.
func (s *Service) requeueDead(ctx context.Context) error {
	dead := job.SQL(`j.kind = 'render' AND j.`+job.AtWork+` AND `+job.Expired+` AND `+user.NotErasing("j.user_id")+`
		AND j.attempts < $1`, job.MaxAttempts)
	return s.jobs.Sweep(db.WithLimit(ctx, job.TTL/3), dead, func(job.Claim, bool) job.Outcome {
		return job.Outcome{Return: &job.Return{To: StatePending, Lost: true, Set: job.SQL(`short_since = NULL`)}}
	})
}

// keepLine updates the turns of owners in the transaction that moved their jobs. It takes the lock in a separate
// statement, so that the next statement sees what others committed while this one waited for the lock.
func keepLine(ctx context.Context, tx *db.Tx, owners []string) error {
	for _, owner := range owners {
		_, err := tx.Exec(ctx, `INSERT INTO render_turns (user_id) VALUES ($1)
			ON CONFLICT (user_id) DO UPDATE SET user_id = excluded.user_id`, owner)
		if err == nil {
			_, err = tx.Exec(ctx, turnSQL, owner)
		}
		if err != nil {
			return fmt.Errorf("keep turns: %w", err)
		}
	}
	return nil
}

// running selects from the jobs of user $1 that have a worker.
const running = ` FROM jobs WHERE user_id = $1 AND kind = 'render' AND ` + job.AtWork

const turnSQL = `UPDATE render_turns SET processing = (SELECT COUNT(*)` + running + `),
		last_started_at = COALESCE((SELECT MAX(started_at)` + running + ` AND started_at > render_turns.last_started_at), last_started_at),
		(next_created_at, next_job_id) = (SELECT created_at, id FROM jobs
			WHERE user_id = $1 AND ` + job.Waiting + ` AND state = 'PENDING' ORDER BY created_at, id LIMIT 1)
	WHERE user_id = $1`

// oldestJob selects the oldest waiting job of owner t whose pause is over and which meets condition. suffix ends the
// statement. Without the bound by the owner's oldest waiting job, PostgreSQL may choose an index that holds all ended
// jobs.
func oldestJob(condition, suffix string) string {
	return `(SELECT j.id FROM jobs j WHERE j.` + job.Waiting + ` AND j.state = 'PENDING'
		AND j.user_id = t.user_id AND (j.created_at, j.id) >= (t.next_created_at, t.next_job_id)
		AND COALESCE(j.lease_until, 0) < now_ms()` + condition + `
		ORDER BY j.created_at, j.id LIMIT 1` + suffix + `)`
}

// firstOwners returns the end of a query that reads the first owners t in line for whom the query job finds a job.
// ORDER BY and LIMIT must be in the same SELECT. Otherwise PostgreSQL may find the jobs of all owners first and sort
// them afterwards.
func firstOwners(job string, limit int) string {
	return fmt.Sprintf(`FROM render_turns t WHERE t.next_job_id IS NOT NULL AND %s IS NOT NULL AND %s
		ORDER BY t.processing, t.last_started_at, t.next_created_at, t.next_job_id LIMIT %d`, job, user.NotErasing("t.user_id"), limit)
}

// waitingSQL returns 1 if any job waits, else 0.
var waitingSQL = `SELECT COALESCE((SELECT 1 ` + firstOwners(oldestJob("", ""), 1) + `), 0)`

// pickSQL selects the job whose turn it is. The owner with the fewest running jobs comes first; if several have equally
// few, the one whose last job started longest ago; then the one whose job has waited longest. The job needs at most $1
// free bytes of disk. No owner gets more than $2 slots while another owner waits. However many owners wait, the query
// reads the first two. skipLocked is [db.DB.SkipLockedOf] j, or "" to look without a lock.
func pickSQL(skipLocked string) string {
	oldest := oldestJob(` AND COALESCE((SELECT d.needs_bytes FROM renders d WHERE d.job_id = j.id), 0) <= $1`, skipLocked)
	return `WITH line AS MATERIALIZED (SELECT t.*, ` + oldest + ` AS job_id ` + firstOwners(oldest, 2) + `)
		SELECT job_id FROM line WHERE processing < $2 OR (SELECT COUNT(*) FROM line) = 1
		ORDER BY processing, last_started_at, next_created_at, next_job_id LIMIT 1`
}

// room bounds what a replica may claim at the moment.
type room struct {
	freeBytes int64
	share     int // slots that one owner may hold while another owner waits: half of all, and at least one
}

// look reports whether a job is waiting that this replica may claim, and the room for it. It takes no lock.
func (s *Service) look(ctx context.Context) (r room, found bool, err error) {
	var waiting int
	if err := s.DB.QueryRow(ctx, waitingSQL).Scan(&waiting); err != nil || waiting == 0 {
		return r, false, err
	}
	live, err := job.Live(ctx, s.DB)
	if err != nil {
		return r, false, err
	}
	s.allSlots.Store(live.Slots)
	r.share = max(1, max(int(live.Slots), s.Slots.Size())/2)
	var unable error
	if r.freeBytes, unable = s.CanWork(ctx); unable != nil { // CanWork logs the reason
		return r, false, nil
	}
	found, err = db.HasRow(ctx, s.DB, `SELECT 1 FROM (`+pickSQL("")+`) AS next`, r.freeBytes, r.share)
	return r, found, err
}

// claim claims the job whose turn it is.
func (s *Service) claim(ctx context.Context) (claimedJob, bool, error) {
	var encoded string
	j, ok, err := job.Queue[claimedJob]{Table: s.jobs,
		Look: func(ctx context.Context) ([]job.Pick, error) {
			r, found, err := s.look(ctx)
			if err != nil || !found {
				return nil, err
			}
			return []job.Pick{{From: StatePending, To: StateProcessing, Lock: queueLock,
				Job: job.SQL(pickSQL(s.DB.SkipLockedOf("j")), r.freeBytes, r.share)}}, nil
		},
		Read: func(ctx context.Context, tx *db.Tx, c job.Claim) (claimedJob, error) {
			j := claimedJob{Claim: c}
			var runMs int64
			err := tx.QueryRow(ctx, `SELECT d.spec, j.progress, now_ms() - j.started_at
				FROM jobs j JOIN renders d ON d.job_id = j.id WHERE j.id = $1`, j.ID).Scan(&encoded, &j.Progress, &runMs)
			j.Deadline = time.Now().Add(s.Timeout - time.Duration(runMs)*time.Millisecond)
			return j, err
		}}.Claim(ctx)
	if err != nil || !ok {
		return j, false, err
	}
	if j.Spec, err = decodeSpec(encoded); err != nil {
		s.jobs.Apply(ctx, j.Claim, job.Outcome{Fail: &job.Ending{Failure: errInternal, Level: slog.LevelError}}, err)
		return j, false, err
	}
	return j, true, nil
}
