// Does what no worker does for a job: ends the jobs that are stuck or cannot start, and removes files that nobody
// needs.

package separation

import (
	"context"
	"errors"
	"time"

	"cutroom/internal/base/fault"
	"cutroom/internal/work/job"
	"cutroom/internal/work/sweep"
)

// staleAfter is how long a job may wait in a queue that does not move.
const staleAfter = 30 * time.Minute

// SweepJobs moves the jobs that no worker will move: those stuck in SUBMITTING, stale in the queue, too long at the
// provider, or READY and abandoned.
func (s *Service) SweepJobs(ctx context.Context) error {
	return errors.Join(s.recoverStuck(ctx), s.failBusy(ctx), s.failStale(ctx), s.failTimedOut(ctx), s.disposeAbandoned(ctx))
}

// recoverDead moves the jobs whose worker died while submitting.
func (s *Service) recoverDead(ctx context.Context) error {
	return s.recoverJobs(ctx, job.SQL(job.Expired))
}

// recoverStuck moves the jobs that a worker, perhaps a living one, has been submitting for longer than the threshold.
func (s *Service) recoverStuck(ctx context.Context) error {
	return s.recoverJobs(ctx, job.SQL(`COALESCE(d.submitting_at, 0) < now_ms() - $1`, s.StuckAfter.Milliseconds()))
}

// recoverJobs returns jobs from SUBMITTING to the queue, and fails those that the provider may have received.
func (s *Service) recoverJobs(ctx context.Context, which job.Fragment) error {
	return s.jobs.Sweep(ctx, job.SQL(inFlight+` AND j.state = 'SUBMITTING'`).And(which), func(c job.Claim, asked bool) job.Outcome {
		switch {
		case asked:
			return job.Outcome{Fail: &job.Ending{Failure: errInterrupted,
				Cause: errors.New("the worker was lost while the provider may have been starting the job")}}
		case c.Attempts >= job.MaxAttempts:
			return job.Outcome{Fail: &job.Ending{Failure: errInterrupted}}
		}
		r := toQueue()
		r.Lost, r.Still = true, job.SQL(`j.asked_at IS NULL`)
		return job.Outcome{Return: r}
	})
}

// failStale fails jobs that have been queued for staleAfter and cannot start: for that long, nobody has worked on any
// job, or the provider has only been busy. A job behind others is not stale, however long those take, while a worker
// holds one of them or has just ended one. failBusy fails those that the provider refused.
func (s *Service) failStale(ctx context.Context) error {
	return s.failAll(ctx, errStale, "it could not start", job.SQL(queued+` AND j.created_at < now_ms() - $1 AND (
		(SELECT COALESCE(MAX(submitting_at), 0) FROM separations WHERE submitting_at IS NOT NULL) < now_ms() - $1
			AND (SELECT until_ms FROM separation_pause WHERE id = 1) < now_ms() - $1
			AND NOT EXISTS (SELECT 1 FROM jobs j WHERE `+inFlight+` AND j.lease_until > now_ms())
			AND NOT EXISTS (SELECT 1 FROM jobs e WHERE e.kind = 'separation' AND e.finished_at > now_ms() - $1
				AND e.asked_at IS NOT NULL AND COALESCE(e.error_code, '') NOT IN ('timed_out', 'interrupted'))
		OR d.busy_since IS NULL AND j.created_at < now_ms() - $2
			AND (SELECT until_ms FROM separation_pause WHERE id = 1 AND refusals > 0) > now_ms() - $2
			AND NOT EXISTS (SELECT 1 FROM jobs j WHERE `+inFlight+` AND j.state = 'PROCESSING')
			AND NOT EXISTS (SELECT 1 FROM separations p WHERE p.submitting_at > now_ms() - $2 AND p.processing_at IS NOT NULL))`,
		staleAfter.Milliseconds(), max(staleAfter, s.BusyWait).Milliseconds()))
}

// fetchingTime is how long fetching the stems may take after the poll time-out, if the provider finished before it.
const fetchingTime = 10 * time.Minute

func (s *Service) failTimedOut(ctx context.Context) error {
	return s.failAll(ctx, errTimedOut, "the provider took too long", job.SQL(
		inFlight+` AND j.state = 'PROCESSING' AND COALESCE(d.processing_at, 0) < now_ms() - $1
			AND COALESCE(d.provider_done_at, 0) < now_ms() - $2`,
		s.PollTimeout.Milliseconds(), min(s.PollTimeout, fetchingTime).Milliseconds()))
}

// failAll fails the jobs that match. Support reads why.
func (s *Service) failAll(ctx context.Context, failure *fault.Error, why string, which job.Fragment) error {
	return s.jobs.Sweep(ctx, which, func(job.Claim, bool) job.Outcome {
		return job.Outcome{Fail: &job.Ending{Failure: failure, Cause: errors.New(why)}}
	})
}

// kindStems is what sweeps call stored stems.
const kindStems = "stems"

// SweepRules says which objects of separations are needed. The stems of a PROCESSING job are stored before their rows,
// and a render may still read those of a deleted job. uploadLifetime applies to sources that never got a job.
func SweepRules(uploadLifetime time.Duration) []sweep.Rule {
	return []sweep.Rule{
		{Kind: "separation uploads", Prefix: "uploads/sep-", Grace: uploadLifetime,
			Owner: `SELECT CASE WHEN state IN ('QUEUED', 'SUBMITTING', 'PROCESSING') AND deleted_at IS NULL THEN 1 ELSE 0 END
				FROM jobs WHERE id = $1`},
		{Kind: kindStems, Prefix: "separation/", Grace: job.OrphanAge,
			Owner: `SELECT CASE WHEN state IN ('PROCESSING', 'READY', 'DISPOSED') THEN 1 ELSE 0 END FROM jobs WHERE id = $1`,
			Object: `SELECT CASE WHEN j.state = 'PROCESSING' OR j.state = 'READY'
					AND EXISTS (SELECT 1 FROM separation_stems t WHERE t.job_id = j.id AND $2 IN (t.object_key, t.peaks_key, t.wav_key))
					OR ` + job.Held("$2") + ` THEN 1 ELSE 0 END
				FROM jobs j WHERE j.id = $1`},
	}
}

// Expire deletes jobs that ended long ago.
func (s *Service) Expire(ctx context.Context) error {
	return errors.Join(s.jobs.Expire(ctx, s.JobLifetime, StateDisposed, ""), s.jobs.Expire(ctx, s.JobLifetime, StateFailed, ""))
}

// SweepFolders removes the work folders that a crash left behind on this disk.
func (s *Service) SweepFolders(ctx context.Context) error { return s.jobs.SweepFolders(ctx, "") }

// Erase removes every file of a user's separations and takes running jobs away from their workers.
func (s *Service) Erase(ctx context.Context, userID string) error { return s.jobs.Erase(ctx, userID) }
