package job

import (
	"context"
	"fmt"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/work/audit"
)

// retryAfterPause is when a client may ask again.
const retryAfterPause = time.Minute

// CheckPaused answers 503 paused while submissions of a kind are paused.
func CheckPaused(ctx context.Context, q db.Querier, kind string) error {
	paused, err := db.HasRow(ctx, q, `SELECT 1 FROM pauses WHERE kind = $1`, kind)
	if err != nil {
		return fmt.Errorf("look for a pause: %w", err)
	}
	if !paused {
		return nil
	}
	f := fault.New(fault.Unavailable, "paused")
	f.RetryAfter = retryAfterPause
	return f
}

// Pause pauses submissions of a kind on all replicas, on behalf of actor, and reports whether they were not paused
// before. Submitted jobs continue.
func Pause(ctx context.Context, d *db.DB, kind, actor string) (changed bool, err error) {
	return switchSubmissions(ctx, d, audit.Entry{Actor: actor, Action: audit.SubmissionsPaused, Target: kind},
		`INSERT INTO pauses (kind, created_at) VALUES ($1, now_ms()) ON CONFLICT (kind) DO NOTHING`)
}

// Resume resumes submissions of a kind on behalf of actor, and reports whether they were paused.
func Resume(ctx context.Context, d *db.DB, kind, actor string) (changed bool, err error) {
	return switchSubmissions(ctx, d, audit.Entry{Actor: actor, Action: audit.SubmissionsResumed, Target: kind},
		`DELETE FROM pauses WHERE kind = $1`)
}

func switchSubmissions(ctx context.Context, d *db.DB, e audit.Entry, query string) (changed bool, err error) {
	err = d.InTx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, query, e.Target)
		changed = n > 0
		if err != nil || !changed {
			return err
		}
		return audit.Record(ctx, tx, e)
	})
	if err != nil {
		return false, fmt.Errorf("%s: %w", e.Action, err)
	}
	return changed, nil
}
