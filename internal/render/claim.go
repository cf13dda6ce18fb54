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

// queueLock orders claims over all replicas: whose turn it is follows from who
// runs what, and two that count at once would both find the same owner first.
const queueLock = "render-queue"

// claimable is the condition that job j waits for a worker, and that $1, the
// node of the replica that asks, reaches its files. A job is PROCESSING without
// a living worker when the worker died; lease_until of one that is PENDING is
// when it may be tried again.
const claimable = `COALESCE(j.lease_until, 0) < now_ms() AND (j.state = 'PENDING' OR j.attempts < 3)
	AND (j.node_id IS NULL OR j.node_id = $1)`

// waitingSQL tells whether any job waits. Each half follows an index that holds
// no job that has ended.
const waitingSQL = `SELECT COALESCE(
	(SELECT 1 FROM render_jobs j WHERE j.state = 'PENDING' AND ` + claimable + ` ORDER BY j.created_at, j.id LIMIT 1),
	(SELECT 1 FROM render_jobs j WHERE j.state = 'PROCESSING' AND j.lease_until < now_ms() AND ` + claimable + ` ORDER BY j.created_at, j.id LIMIT 1), 0)`

// turnSQL finds the job whose turn it is: of the owner with the fewest running,
// among equals the one whose last job started longest ago, the oldest that $3
// bytes of disk are enough for. No owner comes to hold more than $2 slots while
// another one waits.
//
// The queue is read owner by owner, jumping from the first job of one to that of the
// next in the index render_open_by_user: a queue of many jobs costs as much as its
// owners are many. Its list of states is word for word the condition of that index;
// SQLite uses the index for no other wording. An expression is what running is grouped
// by, or SQLite would read all jobs there ever were in the order of their users.
func turnSQL(skipLocked string) string {
	return `WITH RECURSIVE heads (user_id, job_id) AS (
			SELECT '', ''
			UNION ALL
			SELECT h.user_id, h.id FROM heads o JOIN render_jobs h ON h.id = (SELECT j.id FROM render_jobs j
				WHERE j.state IN ('PENDING', 'PROCESSING') AND j.user_id > o.user_id AND ` + claimable + ` AND COALESCE(j.needs_bytes, 0) <= $3
				ORDER BY j.user_id, j.created_at, j.id LIMIT 1)),
		running (user_id, jobs) AS MATERIALIZED (
			SELECT MAX(j.user_id), COUNT(*) FROM render_jobs j
			WHERE j.state = 'PROCESSING' AND j.lease_owner IS NOT NULL AND j.lease_until > now_ms() GROUP BY j.user_id || ''),
		turns AS MATERIALIZED (
			SELECT COALESCE(r.jobs, 0) AS running, o.job_id,
				COALESCE((SELECT MAX(j.started_at) FROM render_jobs j WHERE j.user_id = o.user_id AND j.started_at IS NOT NULL), 0) AS started
			FROM heads o LEFT JOIN running r ON r.user_id = o.user_id
			WHERE o.job_id <> '' AND ` + user.Stays("o.user_id") + `)
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

// waits reports whether a job waits that this replica could take.
func (s *Service) waits(ctx context.Context) (bool, error) {
	var n int
	if err := s.db.QueryRow(ctx, waitingSQL, s.NodeID).Scan(&n); err != nil {
		return false, fmt.Errorf("look for waiting render jobs: %w", err)
	}
	return n == 1, nil
}

// fleet is what is known of all replicas. Claims need not know it to the second.
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

// claim takes the job whose turn it is.
func (s *Service) claim(ctx context.Context) (j claimedJob, ok bool, err error) {
	share, err := s.share(ctx)
	if err != nil {
		return j, false, err
	}
	// Most of those who ask find nothing, and need no lock to find it.
	if waiting, err := s.waits(ctx); err != nil || !waiting {
		return j, false, err
	}
	// CanWork logs the reason.
	freeBytes, unable := s.CanWork(ctx)
	if unable != nil {
		return j, false, nil
	}
	var encoded string
	var runMs, ageMs int64
	// A claim that is under way is not cut short: nobody would know whose it is.
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
