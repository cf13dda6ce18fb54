package render

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/domain/asset"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/work/job"
	"cutroom/internal/work/user"
)

// retryFor is how long the uploads of a failed render are kept if the service, not its sources, is to blame, so that an
// operator can run it again.
const retryFor = 24 * time.Hour

// serviceReasons are the failures for which the service is to blame, not the sources.
var serviceReasons = [...]fault.Reason{fault.Unexplained, fault.Interrupted, fault.Stale, fault.TimedOut}

// serviceToBlame is the condition that a FAILED job may be run again with its uploads.
var serviceToBlame = fmt.Sprintf(`state = 'FAILED' AND deleted_at IS NULL AND error_code IN ('%s', '%s', '%s', '%s')`,
	serviceReasons[0], serviceReasons[1], serviceReasons[2], serviceReasons[3])

// keepsUploads reports whether a failure that is about to be written keeps the job's uploads.
func keepsUploads(failure *fault.Error) bool {
	return failure.Reason == "" || slices.Contains(serviceReasons[:], failure.Reason)
}

// Retry puts a FAILED render back into the queue, with all its attempts and all its time, and runs note in the same
// transaction. The error says why a render cannot be run again. assets has at least a database and, if the store is a
// bucket, the bucket.
func Retry(ctx context.Context, assets *asset.Service, store objectstore.Store, jobID string, note func(tx *db.Tx) error) error {
	d := assets.DB
	j, err := failedJob(ctx, d, jobID)
	if err != nil {
		return err
	}
	used, err := j.Spec.assets()
	if err != nil {
		return err
	}
	found, err := assets.Lookup(ctx, used...)
	if err != nil && len(used) > 0 {
		return fmt.Errorf("look up the assets of render %s: %w", jobID, err)
	}
	for name, source := range j.Spec.Sources {
		switch _, err := store.Stat(ctx, source.Object); {
		case errors.Is(err, objectstore.ErrNotFound):
			return fmt.Errorf("the source %q of render %s is gone", name, jobID)
		case err != nil:
			return fmt.Errorf("look up source %q: %w", name, err)
		}
	}
	return d.InTx(ctx, func(tx *db.Tx) error {
		if err := user.Lock(ctx, tx, j.UserID); err != nil {
			return fmt.Errorf("the owner of render %s deletes the account: %w", jobID, err)
		}
		for _, key := range used {
			// Holding an asset would restore what the owner has removed.
			if held, err := asset.Holds(ctx, tx, j.UserID, key); err != nil {
				return err
			} else if !held {
				return fmt.Errorf("the owner of render %s has removed its source %s", jobID, key)
			}
		}
		if err := keepSources(ctx, tx, j.UserID, j.Spec, found); err != nil {
			return fmt.Errorf("a source that render %s reads is gone: %w", jobID, err)
		}
		changed := fmt.Errorf("render %s changed in the meantime", jobID)
		if err := table(d).Guard(ctx, tx, j.Claim); errors.Is(err, job.ErrMoved) {
			return changed
		} else if err != nil {
			return err
		}
		for _, source := range j.Spec.Sources {
			if err := job.Hold(ctx, tx, jobID, source.Object); err != nil {
				return err
			}
		}
		if err := note(tx); err != nil {
			return err
		}
		// The request may have been dropped since it was read.
		n, err := tx.Exec(ctx, `UPDATE renders SET needs_bytes = NULL, short_since = NULL WHERE job_id = $1 AND spec <> ''`, jobID)
		if err != nil {
			return fmt.Errorf("queue render again: %w", err)
		}
		moved, err := table(d).Move(ctx, tx, jobID, StateFailed, StatePending, job.SQL(`attempts = 0, fence = fence + 1, started_at = NULL,
			finished_at = NULL, error = NULL, error_code = NULL, failure_cause = NULL, lease_until = NULL,
			stored_bytes = (SELECT upload_bytes FROM renders WHERE job_id = jobs.id)`), job.SQL(`deleted_at IS NULL`))
		if err != nil {
			return err
		}
		if !moved || n == 0 {
			return changed
		}
		return job.Announce(ctx, tx, jobID, job.WorkTopic(job.Render))
	})
}

// failedJob reads a job that may be run again.
func failedJob(ctx context.Context, d *db.DB, jobID string) (j claimedJob, err error) {
	var encoded string
	var deleted bool
	err = d.QueryRow(ctx, `SELECT j.user_id, j.state, d.spec, j.fence, j.deleted_at IS NOT NULL
		FROM jobs j JOIN renders d ON d.job_id = j.id WHERE j.id = $1`, jobID).
		Scan(&j.UserID, &j.State, &encoded, &j.Fence, &deleted)
	j.ID = jobID
	switch {
	case db.IsNoRows(err):
		return j, fmt.Errorf("there is no render %q", jobID)
	case err != nil:
		return j, fmt.Errorf("read render: %w", err)
	case deleted:
		return j, fmt.Errorf("the owner of render %s deleted it", jobID)
	case j.State != StateFailed:
		return j, fmt.Errorf("render %s is %s; only a FAILED one can be run again", jobID, j.State)
	case encoded == "":
		return j, fmt.Errorf("the request of render %s is no longer kept", jobID)
	}
	j.Spec, err = decodeSpec(encoded)
	return j, err
}
