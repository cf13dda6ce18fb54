// Package pause owns the switch by which an operator pauses the submission of
// jobs of a kind. It is a row in the database, so it holds for all replicas at
// once and outlives them. Submitted jobs continue.
package pause

import (
	"context"
	"fmt"
	"time"

	"cutroom/internal/audit"
	"cutroom/internal/db"
	"cutroom/internal/fault"
)

// The kinds of jobs that can be paused.
const (
	Render     = "render"
	Separation = "separation"
)

// Kinds lists all of them.
var Kinds = []string{Render, Separation}

// retryAfter is when a client may ask again.
const retryAfter = time.Minute

// Gate refuses submissions that are paused.
type Gate struct{ db *db.DB }

// NewGate returns the gate of a database.
func NewGate(d *db.DB) *Gate { return &Gate{d} }

// Check answers 503 paused while submissions of a kind are paused. A nil Gate
// pauses nothing.
func (g *Gate) Check(ctx context.Context, kind string) error {
	if g == nil {
		return nil
	}
	err := g.db.QueryRow(ctx, `SELECT 1 FROM pauses WHERE kind = $1`, kind).Scan(new(int))
	if db.IsNoRows(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for a pause: %w", err)
	}
	f := fault.New(fault.Unavailable, "paused")
	f.RetryAfter = retryAfter
	return f
}

// Set pauses submissions of a kind on behalf of actor, and reports whether they
// were not paused before.
func Set(ctx context.Context, d *db.DB, kind, actor string) (changed bool, err error) {
	return change(ctx, d, audit.Entry{Actor: actor, Action: audit.SubmissionsPaused, Target: kind},
		`INSERT INTO pauses (kind, created_at) VALUES ($1, now_ms()) ON CONFLICT (kind) DO NOTHING`)
}

// Clear resumes submissions of a kind on behalf of actor, and reports whether
// they were paused.
func Clear(ctx context.Context, d *db.DB, kind, actor string) (changed bool, err error) {
	return change(ctx, d, audit.Entry{Actor: actor, Action: audit.SubmissionsResumed, Target: kind},
		`DELETE FROM pauses WHERE kind = $1`)
}

func change(ctx context.Context, d *db.DB, e audit.Entry, query string) (changed bool, err error) {
	err = d.InTx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, query, e.Target)
		if err != nil {
			return err
		}
		if changed = n > 0; !changed {
			return nil
		}
		return audit.Record(ctx, tx, e)
	})
	if err != nil {
		return false, fmt.Errorf("%s: %w", e.Action, err)
	}
	return changed, nil
}
