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

// queueLock orders claims over all replicas. Whose turn it is depends on what runs, and
// two claims that count at once would both pick the same owner.
const queueLock = "render-queue"

// claimable is the condition that job j waits for a worker and that node $1 reaches its
// files. A PROCESSING job waits when its worker died; lease_until of a PENDING one is
// when it may be tried again.
const claimable = `COALESCE(j.lease_until, 0) < now_ms() AND (j.state = 'PENDING' OR j.attempts < 3)
	AND (j.node_id IS NULL OR j.node_id = $1)`

// waitingSQL tells whether any job waits. Each half uses an index without ended jobs.
const waitingSQL = `SELECT COALESCE(
	(SELECT 1 FROM render_jobs j WHERE j.state = 'PENDING' AND ` + claimable + ` ORDER BY j.created_at, j.id LIMIT 1),
	(SELECT 1 FROM render_jobs j WHERE j.state = 'PROCESSING' AND j.lease_until < now_ms() AND ` + claimable + ` ORDER BY j.created_at, j.id LIMIT 1), 0)`

// The parts of turnSQL. $1 is the node, $2 the share of slots, $3 the bytes of disk.
const (
	// ownersHeads is the oldest claimable job of each owner. It jumps from the first job
	// of one owner to that of the next in the index render_open_by_user, so a long queue
	// costs as much as its owners are many. SQLite uses that index only if the list of
	// states repeats the index's condition word for word.
	ownersHeads = `heads (user_id, job_id) AS (
			SELECT '', ''
			UNION ALL
			SELECT h.user_id, h.id FROM heads o JOIN render_jobs h ON h.id = (SELECT j.id FROM render_jobs j
				WHERE j.state IN ('PENDING', 'PROCESSING') AND j.user_id > o.user_id AND ` + claimable + ` AND COALESCE(j.needs_bytes, 0) <= $3
				ORDER BY j.user_id, j.created_at, j.id LIMIT 1))`
	// ownersRunning counts the running jobs of each owner. It groups by an expression, or
	// SQLite would read all jobs there ever were in the order of their users.
	ownersRunning = `running (user_id, jobs) AS MATERIALIZED (
			SELECT MAX(j.user_id), COUNT(*) FROM render_jobs j
			WHERE j.state = 'PROCESSING' AND j.lease_owner IS NOT NULL AND j.lease_until > now_ms() GROUP BY j.user_id || '')`
	// lastStart is when the last job of owner o started, 0 for one who never started any.
	lastStart = `COALESCE((SELECT MAX(j.started_at) FROM render_jobs j WHERE j.user_id = o.user_id AND j.started_at IS NOT NULL), 0)`
)

// ownersTurns has what decides the order of owners: one row for each that waits.
var ownersTurns = `turns AS MATERIALIZED (
			SELECT COALESCE(r.jobs, 0) AS running, o.job_id, ` + lastStart + ` AS started
			FROM heads o LEFT JOIN running r ON r.user_id = o.user_id
			WHERE o.job_id <> '' AND ` + user.Stays("o.user_id") + `)`

// turnSQL finds the job whose turn it is. It belongs to the owner with the fewest running
// jobs, among equals to the one whose last job started longest ago, and is that owner's
// oldest job for which $3 bytes of disk are enough. No owner gets more than $2 slots
// while another owner waits.
func turnSQL(skipLocked string) string {
	return `WITH RECURSIVE ` + ownersHeads + `, ` + ownersRunning + `, ` + ownersTurns + `
		SELECT j.id FROM turns t CROSS JOIN render_jobs j
		WHERE j.id = t.job_id AND (t.running < $2 OR (SELECT COUNT(*) FROM turns) = 1)
		ORDER BY t.running, t.started, j.created_at, j.id LIMIT 1` + skipLocked
}

// claimSQL claims that job, for $4 and $5 milliseconds. The replica that was lost over it
// is put aside for the log.
func claimSQL(d *db.DB) string {
	return `UPDATE render_jobs SET state = 'PROCESSING', started_at = COALESCE(started_at, now_ms()),
			replica = lease_owner, lease_owner = $4, lease_until = now_ms() + $5, fence = fence + 1, short_since = NULL
		WHERE id = (` + turnSQL(d.SkipLockedOf("j")) + `) AND state IN ('PENDING', 'PROCESSING')
		RETURNING id, COALESCE(replica, ''), user_id, spec, attempts + 1, fence, progress, now_ms() - started_at, now_ms() - created_at`
}

// waits reports whether a job waits that this replica could claim.
func (s *Service) waits(ctx context.Context) (bool, error) {
	var n int
	if err := s.db.QueryRow(ctx, waitingSQL, s.NodeID).Scan(&n); err != nil {
		return false, fmt.Errorf("look for waiting render jobs: %w", err)
	}
	return n == 1, nil
}

// fleet caches the slots of all replicas, which claims need not know to the second.
type fleet struct {
	slots, counted atomic.Int64 // counted at, in Unix nanoseconds
}

// share is how many slots one owner may hold while another one waits: half of
// those of all replicas, and one at least.
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
	// A database that was frozen answers when every lease has run out.
	look := db.Prompt(ctx, job.TTL/3)
	share, err := s.share(look)
	if err != nil {
		return j, false, err
	}
	// Most calls find nothing, and need no lock for that.
	if waiting, err := s.waits(look); err != nil || !waiting {
		return j, false, err
	}
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
	err = s.db.ExecRowLocked(call, queueLock, claimSQL(s.db), []any{s.NodeID, share, freeBytes, s.Renewer.Owner(), job.TTL.Milliseconds()},
		&j.ID, &j.From, &j.UserID, &encoded, &j.Attempts, &j.Fence, &j.Progress, &runMs, &ageMs)
	if db.IsNoRows(err) {
		return j, false, nil
	}
	if err != nil {
		return j, false, fmt.Errorf("claim render job: %w", err)
	}
	j.Deadline = time.Now().Add(s.Timeout - time.Duration(runMs)*time.Millisecond)
	j.Table = s.jobs.Name
	if log := s.jobs.AttemptLog(j.Claim); j.From == "" {
		log.Info("render claimed", "ageMs", ageMs)
	} else {
		log.Info("render taken over", "from", j.From, "ageMs", ageMs)
	}
	if j.Spec, err = decodeSpec(encoded); err != nil {
		_, ferr := s.fail(ctx, j, errInternal, err)
		return j, false, errors.Join(err, ferr)
	}
	return j, true, nil
}
