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

// queueLock makes the claims of all replicas run one after another. Turns depend on the
// running jobs, so two claims at once would both pick the same owner.
const queueLock = "render-queue"

// claimable is the condition that job j waits for a worker and that node $1 can reach its
// files. A PROCESSING job waits once its worker has died and its lease has run out. The
// lease_until of a PENDING job is the end of its pause before a retry.
const claimable = `COALESCE(j.lease_until, 0) < now_ms() AND (j.state = 'PENDING' OR j.attempts < 3)
	AND (j.node_id IS NULL OR j.node_id = $1)`

// oldestJob selects the oldest claimable job of owner t, by a further condition. suffix
// ends the statement. The list of states keeps both databases on the index
// render_open_by_user, whose condition it repeats word for word.
func oldestJob(condition, suffix string) string {
	return `(SELECT j.id FROM render_jobs j WHERE j.state IN ('PENDING', 'PROCESSING') AND j.user_id = t.user_id
		AND ` + claimable + condition + ` ORDER BY j.created_at, j.id LIMIT 1` + suffix + `)`
}

// notBeforeNext is a further condition for an owner who lost no job. Without it,
// PostgreSQL may choose an index that holds all ended jobs.
const notBeforeNext = ` AND (j.created_at, j.id) >= (t.next_created_at, t.next_job_id)`

// inLine is the end of a query for the first owners t in line who fulfil a condition.
// Order and limit stand together, or PostgreSQL may look for the jobs of all owners and
// sort.
func inLine(condition string, limit int) string {
	return fmt.Sprintf(`FROM render_turns t WHERE t.next_job_id IS NOT NULL AND %s AND %s
		ORDER BY t.processing, t.last_started_at, t.next_created_at, t.next_job_id LIMIT %d`, condition, user.Stays("t.user_id"), limit)
}

// waitingSQL tells whether any job waits.
var waitingSQL = `SELECT COALESCE((SELECT 1 ` + inLine(oldestJob(notBeforeNext, "")+` IS NOT NULL`, 1) + `),
	(SELECT 1 FROM render_jobs j WHERE j.state = 'PROCESSING' AND ` + claimable + ` ORDER BY j.created_at, j.id LIMIT 1), 0)`

// usualTurnSQL finds the job whose turn it is in the usual case, for a third of the cost of
// turnSQL: no worker died, and this worker can take the oldest job of the first owner in
// line. Otherwise it finds none.
func usualTurnSQL(d *db.DB) string {
	return `SELECT j.id FROM (SELECT t.next_job_id, t.processing ` + inLine("TRUE", 1) + `) AS t JOIN render_jobs j ON j.id = t.next_job_id
		WHERE t.processing < $3 AND j.state = 'PENDING' AND ` + claimable + fits + ` AND NOT EXISTS (SELECT 1 ` + lost + `)` + d.SkipLockedOf("j")
}

// The parts of turnSQL.
const (
	// fits is the condition that the free disk space is enough for a job.
	fits = ` AND COALESCE(j.needs_bytes, 0) <= $2`
	// lost selects the jobs whose worker died.
	lost = `FROM render_jobs j WHERE j.state = 'PROCESSING' AND (j.lease_owner IS NULL OR j.lease_until <= now_ms())`
	// lostJobs counts the jobs of each owner whose worker died; render_turns still counts
	// them as processing. It groups by an expression, or SQLite would read all jobs in the
	// order of their users.
	lostJobs = `lost (user_id, jobs) AS MATERIALIZED (
			SELECT MAX(j.user_id), COUNT(*) ` + lost + ` GROUP BY j.user_id || '')`
	// outOfLine lists the owners whose place is not the one that render_turns gives them:
	// those who lost jobs and, if an owner's oldest job is not for this worker, all who may
	// come before the job that is.
	outOfLine = `outside (user_id) AS MATERIALIZED (
			SELECT user_id FROM lost
			UNION
			SELECT t.user_id FROM line l JOIN render_turns t ON t.processing = l.processing AND t.last_started_at = l.last_started_at
				AND t.next_job_id IS NOT NULL AND (t.next_created_at, t.next_job_id) <= (l.created_at, l.job_id)
			WHERE l.job_id <> l.next_job_id)`
)

// turnSQL finds the job whose turn it is. It belongs to the owner with the fewest running
// jobs, among equals to the one whose last job started longest ago, and is that owner's
// oldest claimable job for which $2 bytes of disk are enough. No owner gets more than $3
// slots while another owner waits.
//
// A claim reads the first two owners in line who have a job for this worker, however many
// wait behind them.
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

// claimSQL claims the job that turn finds, for replica $4 and $5 milliseconds. It keeps the
// name of the replica that died with the job, for the log.
func claimSQL(turn string) string {
	return `UPDATE render_jobs SET state = 'PROCESSING', started_at = COALESCE(started_at, now_ms()),
			replica = lease_owner, lease_owner = $4, lease_until = now_ms() + $5, fence = fence + 1, short_since = NULL
		WHERE id = (` + turn + `) AND state IN ('PENDING', 'PROCESSING')
		RETURNING id, COALESCE(replica, ''), user_id, spec, attempts + 1, fence, progress, now_ms() - started_at, now_ms() - created_at`
}

// hasWaitingJob reports whether a job waits that this replica could claim.
func (s *Service) hasWaitingJob(ctx context.Context) (bool, error) {
	var n int
	if err := s.db.QueryRow(ctx, waitingSQL, s.NodeID).Scan(&n); err != nil {
		return false, fmt.Errorf("look for waiting render jobs: %w", err)
	}
	return n == 1, nil
}

// fleet caches the number of slots of all replicas; claims may use a count some seconds old.
type fleet struct {
	slots, counted atomic.Int64 // counted at, in Unix nanoseconds
}

// share is how many slots one owner may hold while another one waits: half of all
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
	// A database that was frozen answers only after every lease has run out, so do not
	// wait for it.
	prompt := db.Prompt(ctx, job.TTL/3)
	share, err := s.share(prompt)
	if err != nil {
		return j, false, err
	}
	// After a job there is likely another one.
	if s.claimed.Load() {
		j, ok, err = s.claimBy(ctx, usualTurnSQL(s.db), share)
	}
	if !ok && err == nil {
		// Most calls find nothing, and need no lock for that.
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
	// A claim in progress is not cut short, because its outcome would be unknown.
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
