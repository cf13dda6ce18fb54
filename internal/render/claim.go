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
// at most free bytes of disk. No owner gets more than share slots while another owner waits. Both are parameters, such
// as $6. However many owners wait, the query reads the first two. skipLocked is [db.DB.SkipLockedOf] j, or "" to look
// without a lock.
func pickSQL(free, share, skipLocked string) string {
	oldest := oldestJob(` AND COALESCE((SELECT d.needs_bytes FROM renders d WHERE d.job_id = j.id), 0) <= `+free, skipLocked)
	return `WITH line AS MATERIALIZED (SELECT t.*, ` + oldest + ` AS job_id ` + firstOwners(oldest, 2) + `)
		SELECT job_id FROM line WHERE processing < ` + share + ` OR (SELECT COUNT(*) FROM line) = 1
		ORDER BY processing, last_started_at, next_created_at, next_job_id LIMIT 1`
}

// room bounds what a replica may claim at a moment.
type room struct {
	freeBytes int64
	share     int // slots that one owner may hold while another owner waits: half of all, and at least one
}

// look reports whether a job waits that this replica may claim, and the room for it. It takes no lock.
func (s *Service) look(ctx context.Context) (r room, found bool, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("look for waiting render jobs: %w", err)
		}
	}()
	// A frozen database answers only after every lease has expired, so do not wait for
	// it.
	limited := db.WithLimit(ctx, job.TTL/3)
	var waiting int
	if err := s.DB.QueryRow(limited, waitingSQL).Scan(&waiting); err != nil || waiting == 0 {
		return r, false, err
	}
	live, err := job.Live(limited, s.DB)
	if err != nil {
		return r, false, err
	}
	s.allSlots.Store(live.Slots)
	r.share = max(1, max(int(live.Slots), s.Slots.Size())/2)
	var unable error
	if r.freeBytes, unable = s.CanWork(ctx); unable != nil { // CanWork logs the reason
		return r, false, nil
	}
	found, err = db.HasRow(limited, s.DB, `SELECT 1 FROM (`+pickSQL("$1", "$2", "")+`) AS next`, r.freeBytes, r.share)
	return r, found, err
}

// claim claims the job whose turn it is.
func (s *Service) claim(ctx context.Context) (j claimedJob, ok bool, err error) {
	// Most calls find no job. Find that out without the lock.
	r, found, err := s.look(ctx)
	if err != nil || !found {
		return j, false, err
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
		j.Claim, ok, err = s.jobs.Take(call, tx, StatePending, StateProcessing, pickSQL("$6", "$7", s.DB.SkipLockedOf("j")), r.freeBytes, r.share)
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
