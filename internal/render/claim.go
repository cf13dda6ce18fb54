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

// claimable is the condition that job j waits for a worker and that node $1 can reach its
// files. A PROCESSING job is claimable once its lease has expired, because its worker
// died. The lease_until of a PENDING job is the end of its pause before a retry.
const claimable = `COALESCE(j.lease_until, 0) < now_ms() AND (j.state = 'PENDING' OR j.attempts < 3)
	AND (j.node_id IS NULL OR j.node_id = $1)`

// oldestJob selects the oldest claimable job of owner t that meets condition. suffix ends
// the statement. The list of states repeats the condition of the index
// render_open_by_user word for word, so that both databases use that index.
func oldestJob(condition, suffix string) string {
	return `(SELECT j.id FROM render_jobs j WHERE j.state IN ('PENDING', 'PROCESSING') AND j.user_id = t.user_id
		AND ` + claimable + condition + ` ORDER BY j.created_at, j.id LIMIT 1` + suffix + `)`
}

// notBeforeNext limits oldestJob for owners who lost no job. Without it, PostgreSQL may
// choose an index that holds all ended jobs.
const notBeforeNext = ` AND (j.created_at, j.id) >= (t.next_created_at, t.next_job_id)`

// inLine ends a query that reads the first owners t in line who meet condition, at most
// limit of them. ORDER BY and LIMIT must be in the same SELECT. Otherwise PostgreSQL may
// find the jobs of all owners first and sort them afterwards.
func inLine(condition string, limit int) string {
	return fmt.Sprintf(`FROM render_turns t WHERE t.next_job_id IS NOT NULL AND %s AND %s
		ORDER BY t.processing, t.last_started_at, t.next_created_at, t.next_job_id LIMIT %d`, condition, user.Stays("t.user_id"), limit)
}

// waitingSQL returns 1 if any job waits that node $1 could claim, else 0.
var waitingSQL = `SELECT COALESCE((SELECT 1 ` + inLine(oldestJob(notBeforeNext, "")+` IS NOT NULL`, 1) + `),
	(SELECT 1 FROM render_jobs j WHERE j.state = 'PROCESSING' AND ` + claimable + ` ORDER BY j.created_at, j.id LIMIT 1), 0)`

// usualTurnSQL finds the next job in the usual case, at a third of the cost of turnSQL.
// It returns no row if a worker died or if this worker cannot take the oldest job of the
// first owner in line.
func usualTurnSQL(d *db.DB) string {
	return `SELECT j.id FROM (SELECT t.next_job_id, t.processing ` + inLine("TRUE", 1) + `) AS t JOIN render_jobs j ON j.id = t.next_job_id
		WHERE t.processing < $3 AND j.state = 'PENDING' AND ` + claimable + fits + ` AND NOT EXISTS (SELECT 1 ` + lost + `)` + d.SkipLockedOf("j")
}

// The parts of turnSQL.
const (
	// fits is the condition that the free disk space is enough for a job.
	fits = ` AND COALESCE(j.needs_bytes, 0) <= $2`
	// lost selects the jobs whose lease expired because their worker died.
	lost = `FROM render_jobs j WHERE j.state = 'PROCESSING' AND (j.lease_owner IS NULL OR j.lease_until <= now_ms())`
	// lostJobs counts each owner's lost jobs, which render_turns still counts as
	// processing. It groups by an expression, because SQLite would otherwise read all
	// jobs in the order of their users.
	lostJobs = `lost (user_id, jobs) AS MATERIALIZED (
			SELECT MAX(j.user_id), COUNT(*) ` + lost + ` GROUP BY j.user_id || '')`
	// outOfLine lists the owners whose place in render_turns may be wrong. These are the
	// owners of lost jobs. If this worker cannot take the oldest job of an owner in line,
	// the list also has the owners who tie with that owner and may come before the job
	// that it can take.
	outOfLine = `outside (user_id) AS MATERIALIZED (
			SELECT user_id FROM lost
			UNION
			SELECT t.user_id FROM line l JOIN render_turns t ON t.processing = l.processing AND t.last_started_at = l.last_started_at
				AND t.next_job_id IS NOT NULL AND (t.next_created_at, t.next_job_id) <= (l.created_at, l.job_id)
			WHERE l.job_id <> l.next_job_id)`
)

// turnSQL finds the job whose turn it is. The owner with the fewest running jobs comes
// first; if several have equally few, the one whose last job started longest ago. That
// owner gets the oldest claimable job that needs at most $2 bytes of disk. No owner gets
// more than $3 slots while another owner waits.
//
// A claim reads only the first two owners in line who have a job for this worker, however
// many wait behind them. It ranks them together with the owners of outOfLine.
func turnSQL(d *db.DB) string {
	waiting, job := oldestJob(fits+notBeforeNext, d.SkipLockedOf("j")), oldestJob(fits, d.SkipLockedOf("j"))
	const createdAt = `(SELECT h.created_at FROM render_jobs h WHERE h.id = t.job_id) AS created_at`
	return `WITH ` + lostJobs + `,
		line AS MATERIALIZED (SELECT t.*, ` + createdAt + `
			FROM (SELECT t.*, ` + waiting + ` AS job_id ` + inLine(waiting+` IS NOT NULL`, 2) + `) AS t),
		` + outOfLine + `,
		turns (running, last_started_at, created_at, job_id) AS MATERIALIZED (
			SELECT processing, last_started_at, created_at, job_id FROM line WHERE user_id NOT IN (SELECT user_id FROM outside)
			UNION ALL
			SELECT t.processing - COALESCE((SELECT jobs FROM lost WHERE lost.user_id = t.user_id), 0), t.last_started_at, ` + createdAt + `, t.job_id
			FROM (SELECT t.*, ` + job + ` AS job_id FROM outside o JOIN render_turns t ON t.user_id = o.user_id
				WHERE ` + user.Stays("t.user_id") + `) AS t WHERE t.job_id IS NOT NULL)
		SELECT job_id FROM turns WHERE running < $3 OR (SELECT COUNT(*) FROM turns) = 1
		ORDER BY running, last_started_at, created_at, job_id LIMIT 1`
}

// claimSQL claims the job that turn finds, for replica $4 and for $5 milliseconds. It
// keeps the name of the replica that lost the job, for the log.
func claimSQL(turn string) string {
	return `UPDATE render_jobs SET state = 'PROCESSING', started_at = COALESCE(started_at, now_ms()),
			replica = lease_owner, lease_owner = $4, lease_until = now_ms() + $5, fence = fence + 1, short_since = NULL
		WHERE id = (` + turn + `) AND state IN ('PENDING', 'PROCESSING')
		RETURNING id, COALESCE(replica, ''), user_id, spec, attempts + 1, fence, progress, now_ms() - started_at, now_ms() - created_at`
}

// hasWaitingJob reports whether a job waits that this node could claim.
func (s *Service) hasWaitingJob(ctx context.Context) (bool, error) {
	var n int
	if err := s.db.QueryRow(ctx, waitingSQL, s.NodeID).Scan(&n); err != nil {
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
	// After one job there is likely another.
	if s.claimed.Load() {
		j, ok, err = s.claimBy(ctx, usualTurnSQL(s.db), share)
	}
	if !ok && err == nil {
		// Most calls find no job. Find that out without the lock.
		if waiting, err := s.hasWaitingJob(prompt); err != nil || !waiting {
			s.claimed.Store(false)
			return j, false, err
		}
		j, ok, err = s.claimBy(ctx, turnSQL(s.db), share)
	}
	s.claimed.Store(ok)
	return j, ok, err
}

// claimBy claims the job that turn finds.
func (s *Service) claimBy(ctx context.Context, turn string, share int) (j claimedJob, ok bool, err error) {
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
	err = s.db.ExecRowLocked(call, queueLock, claimSQL(turn), []any{s.NodeID, freeBytes, share, s.Renewer.Owner(), job.TTL.Milliseconds()},
		&j.ID, &j.LostReplica, &j.UserID, &encoded, &j.Attempts, &j.Fence, &j.Progress, &runMs, &ageMs)
	if db.IsNoRows(err) {
		return j, false, nil
	}
	if err != nil {
		return j, false, fmt.Errorf("claim render job: %w", err)
	}
	j.Deadline = time.Now().Add(s.Timeout - time.Duration(runMs)*time.Millisecond)
	j.Table = s.jobs.Name
	if log := s.jobs.AttemptLog(j.Claim); j.LostReplica == "" {
		log.Info("render claimed", "ageMs", ageMs)
	} else {
		log.Info("render taken over", "from", j.LostReplica, "ageMs", ageMs)
	}
	if j.Spec, err = decodeSpec(encoded); err != nil {
		_, ferr := s.fail(ctx, j, errInternal, err)
		return j, false, errors.Join(err, ferr)
	}
	return j, true, nil
}
