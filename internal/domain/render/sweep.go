// The sweeps of renders fail the jobs that no worker will end, and remove what has expired.

package render

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/work/job"
	"cutroom/internal/work/sweep"
	"cutroom/internal/work/user"
)

// SweepRules says which objects of renders are needed. uploadLifetime applies to uploads that never got a job, and
// partLifetime to shared parts, from when they were made.
func SweepRules(uploadLifetime, partLifetime time.Duration) []sweep.Rule {
	return []sweep.Rule{
		{Kind: "render uploads", Prefix: "uploads/rnd-", Grace: uploadLifetime,
			Owner: fmt.Sprintf(`SELECT CASE WHEN %s OR %s AND finished_at > now_ms() - %d THEN 1 ELSE 0 END
				FROM jobs WHERE id = $1`, job.Unfinished, serviceToBlame, retryFor.Milliseconds())},
		{Kind: "render outputs", Prefix: "render/", Grace: job.OrphanAge,
			Owner: `SELECT CASE WHEN j.state = 'PROCESSING' OR d.output_key IS NOT NULL THEN 1 ELSE 0 END
				FROM jobs j JOIN renders d ON d.job_id = j.id WHERE j.id = $1`},
		{Kind: kindInputs, Prefix: "inputs/", Grace: job.OrphanAge, Owner: user.ExistsQuery,
			Object: `SELECT 1 FROM render_inputs WHERE user_id = $1 AND object_key = $2
				UNION ALL SELECT 1 WHERE ` + job.Held("$2")},
		{Kind: "render parts", Prefix: "parts/", Grace: job.OrphanAge, Owner: user.ExistsQuery, Lifetime: partLifetime},
	}
}

// SweepJobs fails the jobs that no worker will end: those whose workers died too often, whose time ran out while they
// waited, and for which no replica has had room.
func (s *Service) SweepJobs(ctx context.Context) error {
	live, err := job.Live(ctx, s.DB)
	if err != nil {
		return err
	}
	free := live.MostFreeBytes
	if live.Replicas == 0 {
		free = math.MaxInt64 // no replica is alive, so none is short of room
	}
	// A job whose need is unknown needs at least one byte.
	_, err = s.DB.Exec(ctx, `UPDATE renders SET short_since = CASE WHEN COALESCE(needs_bytes, 1) > $1 THEN now_ms() END
		WHERE (short_since IS NULL) = (COALESCE(needs_bytes, 1) > $1)
			AND job_id IN (SELECT id FROM jobs WHERE kind = 'render' AND `+job.Waiting+`)`, free)
	if err != nil {
		err = fmt.Errorf("note jobs without room: %w", err)
	}
	return errors.Join(err,
		s.failAll(ctx, errInterrupted, `j.`+job.AtWork+` AND j.lease_until < now_ms() AND j.attempts >= $1`, job.MaxAttempts),
		s.failAll(ctx, s.overdue(), `j.`+job.Waiting+` AND j.started_at < now_ms() - $1`, s.Timeout.Milliseconds()),
		s.failAll(ctx, errNoRoom, `j.`+job.Waiting+` AND d.short_since < now_ms() - $1`, waitTimeout.Milliseconds()))
}

// waitTimeout is how long a job may wait while no live replica has room for it.
const waitTimeout = 30 * time.Minute

// overdue is the failure of a job that took too long.
func (s *Service) overdue() *fault.Error {
	return fault.Failedf(fault.TimedOut, "The video could not be rendered: it took longer than %d minutes", s.Timeout/time.Minute)
}

// failAll fails the jobs j, with their details d, that meet a condition. The next sweep of files removes their uploads.
func (s *Service) failAll(ctx context.Context, failure *fault.Error, which string, args ...any) error {
	return s.jobs.Sweep(ctx, job.SQL(`j.kind = 'render' AND `+which, args...), func(job.Claim, bool) job.Outcome {
		return job.Outcome{Fail: &job.Ending{Failure: failure}}
	})
}

// kindInputs is the sweeps' name for cached inputs.
const kindInputs = "render inputs"

// Expire forgets expired outputs, which the sweep of objects then removes. It also deletes unused inputs and jobs that
// ended long ago.
func (s *Service) Expire(ctx context.Context) error {
	return errors.Join(s.expireOutputs(ctx), s.expireSpecs(ctx), s.expireInputs(ctx),
		s.jobs.Expire(ctx, s.JobLifetime, StateFailed, ""),
		s.jobs.Expire(ctx, s.JobLifetime, StateCompleted, ` AND id NOT IN (SELECT job_id FROM renders WHERE output_key IS NOT NULL)`))
}

// expireOutputs forgets the films whose lifetime is over.
func (s *Service) expireOutputs(ctx context.Context) error {
	for n := expireBatch; n == expireBatch; {
		err := s.DB.InTx(ctx, func(tx *db.Tx) error {
			// A download may renew a film that was just selected.
			ids, err := db.Texts(tx.Query(ctx, `UPDATE renders SET output_key = NULL, poster_key = NULL WHERE expires_at < now_ms()
				AND job_id IN (SELECT j.id FROM jobs j JOIN renders d ON d.job_id = j.id
					WHERE d.output_key IS NOT NULL AND d.expires_at < now_ms() LIMIT $1`+tx.SkipLockedOf("j")+`) RETURNING job_id`, expireBatch))
			n = len(ids)
			for _, id := range ids {
				err = errors.Join(err, job.CountBytes(ctx, tx, id, 0))
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("expire outputs: %w", err)
		}
	}
	return nil
}

// expireBatch bounds the rows of one statement.
const expireBatch = 1000

// expireSpecs drops the requests of failed jobs whose inputs are no longer kept.
func (s *Service) expireSpecs(ctx context.Context) error {
	for {
		n, err := s.DB.Exec(ctx, `UPDATE renders SET spec = '' WHERE job_id IN (SELECT j.id FROM jobs j JOIN renders d ON d.job_id = j.id
			WHERE d.spec <> '' AND j.finished_at IS NOT NULL AND j.finished_at < now_ms() - $1 LIMIT $2`+s.DB.SkipLockedOf("j")+`)`,
			s.InputLifetime.Milliseconds(), expireBatch)
		if err != nil {
			return fmt.Errorf("expire requests: %w", err)
		}
		if n < expireBatch {
			return nil
		}
	}
}

// SweepFolders removes the work folders that a crash left behind on this disk.
func (s *Service) SweepFolders(ctx context.Context) error {
	return s.jobs.SweepFolders(ctx, assistSuffix)
}

func (s *Service) expireInputs(ctx context.Context) error {
	keys, err := s.DB.ExecTexts(ctx, `DELETE FROM render_inputs WHERE last_used_at < now_ms() - $1
		AND NOT `+job.Held("render_inputs.object_key")+` RETURNING object_key`, s.InputLifetime.Milliseconds())
	if err != nil {
		return fmt.Errorf("expire inputs: %w", err)
	}
	return s.Sweeper.Remove(ctx, kindInputs, keys...)
}

// Erase removes every file of a user's renders and takes running jobs away from their workers. Deleting the user
// deletes the rows.
func (s *Service) Erase(ctx context.Context, userID string) error {
	if err := s.jobs.Erase(ctx, userID); err != nil {
		return err
	}
	if err := objectstore.DeletePrefix(ctx, s.Store, "inputs/"+userID+"/", "parts/"+userID+"/"); err != nil {
		return fmt.Errorf("erase renders: %w", err)
	}
	return s.EraseCaches(ctx, userID)
}
