package render

import (
	"context"
	"errors"
	"fmt"

	"cutroom/internal/db"
	"cutroom/internal/lease"
)

// queueLock orders claims over all replicas: whose turn it is follows from who
// runs what, and two that count at once would both find the same owner first.
const queueLock = "render-queue"

// claimable is the condition that job j waits for a worker, and that $1, the
// node of the replica that asks, reaches its files. A job is PROCESSING without
// a living worker when the worker died.
const claimable = `(j.state = 'PENDING' OR j.lease_until < now_ms() AND j.attempts < 3)
	AND (j.node_id IS NULL OR j.node_id = $1)`

// waitingSQL tells whether any job waits. Each half follows an index that holds
// no job that has ended.
const waitingSQL = `SELECT COALESCE(
	(SELECT 1 FROM render_jobs j WHERE j.state = 'PENDING' AND ` + claimable + ` ORDER BY j.created_at, j.id LIMIT 1),
	(SELECT 1 FROM render_jobs j WHERE j.state = 'PROCESSING' AND j.lease_until < now_ms() AND ` + claimable + ` ORDER BY j.lease_until LIMIT 1), 0)`

// claimSQL claims the job whose turn it is: of the owner with the fewest running,
// among equals the one whose last job started longest ago, the oldest. No owner
// comes to hold more than $2 slots while another one waits.
//
// The queue is read owner by owner, jumping from one to the next in the index
// render_open_by_user: a queue of many jobs costs as much as its owners are many.
// Its list of states is word for word the condition of that index; SQLite uses
// the index for no other wording. An expression is what running is grouped by,
// or SQLite would read all jobs there ever were in the order of their users.
func claimSQL(skipLocked string) string {
	const open = `j.state IN ('PENDING', 'PROCESSING')`
	return `WITH RECURSIVE owners (id) AS (
			SELECT MIN(j.user_id) FROM render_jobs j WHERE ` + open + `
			UNION ALL
			SELECT (SELECT MIN(j.user_id) FROM render_jobs j WHERE ` + open + ` AND j.user_id > o.id) FROM owners o WHERE o.id IS NOT NULL),
		running (user_id, jobs) AS MATERIALIZED (
			SELECT MAX(j.user_id), COUNT(*) FROM render_jobs j
			WHERE j.state = 'PROCESSING' AND j.lease_owner IS NOT NULL AND j.lease_until > now_ms() GROUP BY j.user_id || ''),
		turns AS MATERIALIZED (
			SELECT COALESCE(r.jobs, 0) AS running,
				(SELECT j.id FROM render_jobs j WHERE ` + open + ` AND j.user_id = o.id AND ` + claimable + `
					ORDER BY j.created_at, j.id LIMIT 1) AS job_id,
				COALESCE((SELECT MAX(j.started_at) FROM render_jobs j WHERE j.user_id = o.id AND j.started_at IS NOT NULL), 0) AS started
			FROM owners o LEFT JOIN running r ON r.user_id = o.id
			WHERE o.id NOT IN (SELECT u.id FROM users u WHERE u.erasing_at IS NOT NULL))
		UPDATE render_jobs SET state = 'PROCESSING', started_at = COALESCE(started_at, now_ms()),
			attempts = attempts + 1, lease_owner = $3, lease_until = now_ms() + $4, fence = fence + 1
		WHERE id = (SELECT j.id FROM turns t CROSS JOIN render_jobs j
			WHERE j.id = t.job_id AND (t.running < $2 OR (SELECT COUNT(job_id) FROM turns) = 1)
			ORDER BY t.running, t.started, j.created_at, j.id LIMIT 1` + skipLocked + `)
		RETURNING id, user_id, spec, attempts, fence, progress`
}

// waits reports whether a job waits that this replica could take.
func (s *Service) waits(ctx context.Context) (bool, error) {
	var n int
	if err := s.db.QueryRow(ctx, waitingSQL, s.NodeID).Scan(&n); err != nil {
		return false, fmt.Errorf("look for waiting render jobs: %w", err)
	}
	return n == 1, nil
}

// share is how many slots one owner may hold while another one waits: half of
// those of all replicas, and one at least.
func (s *Service) share(ctx context.Context) (int, error) {
	all, err := lease.LiveSlots(ctx, s.db)
	return max(1, max(all, s.Slots.Size())/2), err
}

// claim takes the job whose turn it is. Waiting says that there are jobs, even
// where none of them may be taken now.
func (s *Service) claim(ctx context.Context) (j job, ok, waiting bool, err error) {
	// Most of those who ask find nothing, and need no lock to find it.
	if waiting, err = s.waits(ctx); err != nil || !waiting {
		return j, false, waiting, err
	}
	share, err := s.share(ctx)
	if err != nil {
		return j, false, true, err
	}
	var encoded string
	err = s.db.InTx(ctx, func(tx *db.Tx) error {
		ok = false
		if err := tx.Lock(ctx, queueLock); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, claimSQL(tx.SkipLockedOf("j")), s.NodeID, share, s.Keeper.Owner(), lease.TTL.Milliseconds()).
			Scan(&j.ID, &j.UserID, &encoded, &j.Attempts, &j.Fence, &j.Progress)
		if isNoRows(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("claim render job: %w", err)
		}
		ok = true
		return nil
	})
	if err == nil && ok {
		if j.Spec, err = decodeSpec(encoded); err != nil {
			return j, false, true, errors.Join(err, s.fail(ctx, j, sentenceInternal, err))
		}
	}
	return j, ok, true, err
}
