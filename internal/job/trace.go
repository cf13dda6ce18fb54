package job

import (
	"context"
	"database/sql"
)

// Trace begins a span of work on a job, on whichever replica, in the trace of the
// request that submitted it. The returned function ends the span.
func (t Table) Trace(ctx context.Context, name, id string) (context.Context, func(error)) {
	if t.Tracer == nil {
		return ctx, func(error) {}
	}
	var parent sql.NullString
	if err := t.DB.QueryRow(ctx, `SELECT trace_parent FROM jobs WHERE id = $1`, id).Scan(&parent); err != nil {
		return ctx, func(error) {} // the work itself reports what is wrong with the database
	}
	return t.Tracer.Attempt(ctx, name, parent.String, id, t.Renewer.Owner())
}
