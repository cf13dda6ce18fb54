package render

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cutroom/internal/db"
	"cutroom/internal/fault"
	"cutroom/internal/job"
	"cutroom/internal/objectstore"
	"cutroom/internal/sweep"
	"cutroom/internal/user"
)

// SweepRules says which objects of renders are needed. uploadLifetime is for uploads that
// never got a job, partLifetime for shared parts since they were made.
func SweepRules(uploadLifetime, partLifetime time.Duration) []sweep.Rule {
	return []sweep.Rule{
		{Kind: "render uploads", Prefix: "uploads/rnd-", Grace: uploadLifetime,
			Owner: fmt.Sprintf(`SELECT CASE WHEN state IN ('PENDING', 'PROCESSING') OR %s AND finished_at > now_ms() - %d THEN 1 ELSE 0 END
				FROM render_jobs WHERE id = $1`, serviceToBlame, retryFor.Milliseconds())},
		{Kind: "render outputs", Prefix: "render/", Grace: job.OrphanAge,
			Owner: `SELECT CASE WHEN state = 'PROCESSING' OR output_key IS NOT NULL THEN 1 ELSE 0 END FROM render_jobs WHERE id = $1`},
		{Kind: kindInputs, Prefix: "inputs/", Grace: job.OrphanAge, Owner: user.ExistsQuery,
			Object: `SELECT 1 FROM render_inputs WHERE user_id = $1 AND object_key = $2
				UNION ALL SELECT 1 WHERE ` + job.Held("$2")},
		{Kind: "render parts", Prefix: "parts/", Grace: job.OrphanAge, Owner: user.ExistsQuery, Lifetime: partLifetime},
	}
}

// SweepJobs fails the jobs that no worker will end: those whose workers died too often,
// whose time ran out while they waited, and for which no replica has had room.
func (s *Service) SweepJobs(ctx context.Context) error {
	_, free, err := job.Live(ctx, s.db)
	if err != nil {
		return err
	}
	// A job whose need is unknown needs at least one byte.
	_, err = s.db.Exec(ctx, `UPDATE render_jobs SET short_since = CASE WHEN COALESCE(needs_bytes, 1) > $1 THEN now_ms() END
		WHERE state = 'PENDING' AND (short_since IS NULL) = (COALESCE(needs_bytes, 1) > $1)`, free)
	if err != nil {
		err = fmt.Errorf("note jobs without room: %w", err)
	}
	return errors.Join(err,
		s.failAll(ctx, errInterrupted, `state = 'PROCESSING' AND lease_until < now_ms() AND attempts >= 3`),
		s.failAll(ctx, s.overdue(), `state = 'PENDING' AND started_at < now_ms() - $4`, s.Timeout.Milliseconds()),
		s.failAll(ctx, errNoRoom, `state = 'PENDING' AND short_since < now_ms() - $4`, waitTimeout.Milliseconds()))
}

// waitTimeout is how long a job may wait while no live replica has room for it.
const waitTimeout = 30 * time.Minute

// overdue is the failure of a job that took too long.
func (s *Service) overdue() *fault.Error {
	return fault.Failedf(fault.TimedOut, "The video could not be rendered: it took longer than %d minutes", s.Timeout/time.Minute)
}

// failAll fails the jobs of a condition, whose parameters begin with $4. The next sweep
// of files removes their uploads.
func (s *Service) failAll(ctx context.Context, failure *fault.Error, where string, args ...any) error {
	var ends []job.End
	err := s.db.InTx(ctx, func(tx *db.Tx) (err error) {
		ends, err = s.jobs.Fail(ctx, tx, failure, nil, where, args...)
		return err
	})
	if err != nil {
		return fmt.Errorf("give up render jobs: %w", err)
	}
	for _, e := range ends {
		s.log.Warn("render job given up", "job", e.ID, "why", failure.Sentence)
	}
	return nil
}

// kindInputs is the sweeps' name for cached inputs.
const kindInputs = "render inputs"

// Expire forgets expired outputs, which the sweep of objects then removes. It also deletes
// unused inputs and jobs that ended long ago.
func (s *Service) Expire(ctx context.Context) error {
	_, err := s.db.Exec(ctx, `UPDATE render_jobs SET output_key = NULL, poster_key = NULL WHERE output_key IS NOT NULL
		AND expires_at < now_ms()`)
	if err != nil {
		err = fmt.Errorf("expire outputs: %w", err)
	}
	return errors.Join(err, s.expireSpecs(ctx), s.expireInputs(ctx),
		s.jobs.Expire(ctx, s.JobLifetime, `state IN ('COMPLETED', 'FAILED') AND output_key IS NULL`))
}

// expireBatch bounds the rows of one statement.
const expireBatch = 1000

// expireSpecs drops the requests of failed jobs whose inputs are no longer kept.
func (s *Service) expireSpecs(ctx context.Context) error {
	for {
		n, err := s.db.Exec(ctx, `UPDATE render_jobs SET spec = '' WHERE id IN (
			SELECT id FROM render_jobs WHERE spec <> '' AND finished_at IS NOT NULL AND finished_at < now_ms() - $1 LIMIT $2)`,
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
	keys, err := s.db.ExecTexts(ctx, `DELETE FROM render_inputs WHERE last_used_at < now_ms() - $1
		AND NOT `+job.Held("render_inputs.object_key")+` RETURNING object_key`, s.InputLifetime.Milliseconds())
	if err != nil {
		return fmt.Errorf("expire inputs: %w", err)
	}
	return s.Sweeper.Remove(ctx, kindInputs, keys...)
}

// Erase removes every file of a user's renders and takes running jobs away from their
// workers. Deleting the user deletes the rows.
func (s *Service) Erase(ctx context.Context, userID string) error {
	ids, err := s.jobs.Revoke(ctx, userID, `state IN ('PENDING', 'PROCESSING')`)
	if err != nil {
		return err
	}
	if err := s.eraseJobs(ctx, ids...); err != nil {
		return err
	}
	if err := objectstore.DeletePrefix(ctx, s.Store, "inputs/"+userID+"/", "parts/"+userID+"/"); err != nil {
		return fmt.Errorf("erase renders: %w", err)
	}
	return s.EraseCaches(ctx, userID)
}
