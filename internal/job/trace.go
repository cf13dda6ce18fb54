package job

import (
	"context"
	"database/sql"
	"fmt"

	"cutroom/internal/db"
	"cutroom/internal/tracing"
)

// storeTrace writes the identity of the request's span into the row of a new job,
// if the request is sampled.
func (t Table) storeTrace(ctx context.Context, tx *db.Tx, id string) error {
	parent := tracing.Parent(ctx)
	if parent == "" {
		return nil
	}
	if _, err := tx.Exec(ctx, `UPDATE `+t.Name+` SET trace_parent = $2 WHERE id = $1`, id, parent); err != nil {
		return fmt.Errorf("store trace: %w", err)
	}
	return nil
}

// Trace begins a span of work on a job, on whichever replica, in the trace of the
// request that submitted it. The returned function ends the span.
func (t Table) Trace(ctx context.Context, name, id string) (context.Context, func(error)) {
	if t.Tracer == nil {
		return ctx, func(error) {}
	}
	var parent sql.NullString
	if err := t.DB.QueryRow(ctx, `SELECT trace_parent FROM `+t.Name+` WHERE id = $1`, id).Scan(&parent); err != nil {
		return ctx, func(error) {} // the work itself reports what is wrong with the database
	}
	return t.Tracer.Attempt(ctx, name, parent.String, id, t.Renewer.Owner())
}
