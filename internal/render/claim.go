package render

import (
	"context"
	"errors"
	"fmt"
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
	ctx = db.WithLimit(ctx, job.TTL/3)
	dead, err := s.jobs.Dead(ctx)
	for _, c := range dead {
		moved, berr := s.jobs.HandBack(ctx, c, job.Return{From: StateProcessing, To: StatePending, Lost: true, And: job.Expired, Set: `short_since = NULL`})
		if moved {
			s.Log.Info("render requeued, because its worker died", "job", c.ID)
		}
		err = errors.Join(err, berr)
	}
	return err
}

// keepLine brings the turns of owners up to date in the transaction that moved their jobs. The lock is a statement of
// its own, because the statement after it sees what others committed while this one waited.
func keepLine(ctx context.Context, tx *db.Tx, owners []string) error {
	for _, owner := range owners {
		_, err := tx.Exec(ctx, `INSERT INTO render_turns (user_id) VALUES ($1) ON CONFLICT (user_id) DO UPDATE SET user_id = excluded.user_id`, owner)
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

// oldestJob selects the oldest job of owner t that waits, whose pause is over, and that meets condition. suffix ends
// the statement. Without the bound by the owner's oldest job, PostgreSQL may choose an index that holds all ended jobs.
func oldestJob(condition, suffix string) string {
	return `(SELECT j.id FROM jobs j WHERE j.` + job.Waiting + ` AND j.state = 'PENDING'
		AND j.user_id = t.user_id AND (j.created_at, j.id) >= (t.next_created_at, t.next_job_id)
		AND COALESCE(j.lease_until, 0) < now_ms()` + condition + `
		ORDER BY j.created_at, j.id LIMIT 1` + suffix + `)`
}

// firstOwners ends a query that reads the first owners t in line for whom job finds one. ORDER BY and LIMIT must
// be in the same SELECT. Otherwise PostgreSQL may find the jobs of all owners first and sort them afterwards.
func firstOwners(job string, limit int) string {
	return fmt.Sprintf(`FROM render_turns t WHERE t.next_job_id IS NOT NULL AND %s IS NOT NULL AND %s
		ORDER BY t.processing, t.last_started_at, t.next_created_at, t.next_job_id LIMIT %d`, job, user.NotErasing("t.user_id"), limit)
}

// waitingSQL returns 1 if any job waits, else 0.
var waitingSQL = `SELECT COALESCE((SELECT 1 ` + firstOwners(oldestJob("", ""), 1) + `), 0)`

// pickSQL selects the job whose turn it is. The owner with the fewest running jobs comes first; if several have
// equally few, the one whose last job started longest ago; then the one whose job has waited longest. The job needs
// at most $6 bytes of disk. No owner gets more than $7 slots while another owner waits. However many owners wait,
// the query reads the first two.
func pickSQL(d *db.DB) string {
	oldest := oldestJob(` AND COALESCE((SELECT d.needs_bytes FROM renders d WHERE d.job_id = j.id), 0) <= $6`, d.SkipLockedOf("j"))
	return `WITH line AS MATERIALIZED (SELECT t.*, ` + oldest + ` AS job_id ` + firstOwners(oldest, 2) + `)
		SELECT job_id FROM line WHERE processing < $7 OR (SELECT COUNT(*) FROM line) = 1
		ORDER BY processing, last_started_at, next_created_at, next_job_id LIMIT 1`
}

// hasWaitingJob reports whether a job waits.
func (s *Service) hasWaitingJob(ctx context.Context) (bool, error) {
	var n int
	if err := s.DB.QueryRow(ctx, waitingSQL).Scan(&n); err != nil {
		return false, fmt.Errorf("look for waiting render jobs: %w", err)
	}
	return n == 1, nil
}

// share returns how many slots one owner may hold while another owner waits: half of all
// replicas' slots, and at least one.
func (s *Service) share(ctx context.Context) (int, error) {
	n, _, err := job.Live(ctx, s.DB)
	if err != nil {
		return 0, err
	}
	s.allSlots.Store(n)
	return max(1, max(int(n), s.Slots.Size())/2), nil
}

// claim claims the job whose turn it is.
func (s *Service) claim(ctx context.Context) (j claimedJob, ok bool, err error) {
	// A frozen database answers only after every lease has expired, so do not wait for
	// it.
	limited := db.WithLimit(ctx, job.TTL/3)
	// Most calls find no job. Find that out without the lock.
	if waiting, err := s.hasWaitingJob(limited); err != nil || !waiting {
		return j, false, err
	}
	share, err := s.share(limited)
	if err != nil {
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
	err = s.DB.InTx(call, func(tx *db.Tx) error {
		if err := tx.Lock(call, queueLock); err != nil {
			return err
		}
		j.Claim, ok, err = s.jobs.Take(call, tx, StatePending, StateProcessing, pickSQL(s.DB), freeBytes, share)
		if err != nil || !ok {
			return err
		}
		if err := job.Announce(call, tx, j.ID); err != nil {
			return err
		}
		return tx.QueryRow(call, `SELECT d.spec, j.progress, now_ms() - j.started_at, now_ms() - j.created_at
			FROM jobs j JOIN renders d ON d.job_id = j.id WHERE j.id = $1`, j.ID).Scan(&encoded, &j.Progress, &runMs, &ageMs)
	})
	if err != nil {
		return claimedJob{}, false, fmt.Errorf("claim render: %w", err)
	}
	if !ok {
		return j, false, nil
	}
	j.Deadline = time.Now().Add(s.Timeout - time.Duration(runMs)*time.Millisecond)
	s.jobs.AttemptLog(j.Claim).Info("render claimed", "ageMs", ageMs)
	if j.Spec, err = decodeSpec(encoded); err != nil {
		_, ferr := s.fail(ctx, j, errInternal, err)
		return j, false, errors.Join(err, ferr)
	}
	return j, true, nil
}
