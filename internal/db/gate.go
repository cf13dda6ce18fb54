package db

import "context"

// A Gate stands between a [DB] and its database. A simulation decides there when each
// call is made, whether it fails, and whether its answer is lost.
type Gate interface {
	// Pass is called before each call. The call is made in the returned context, which
	// refuses it if it has ended, and its caller gets what the returned function makes
	// of its error. That function may be called more than once.
	Pass(ctx context.Context, c Call) (context.Context, func(error) error)
}

// Call is a statement, or the begin or commit of a transaction.
type Call struct {
	Query string
	Args  []any
	Tx    bool // within a transaction, whose commit is such a call as well
}

// The queries of calls that are no statement.
const beginTx, commitTx = "BEGIN", "COMMIT"

// Through returns a DB on the same connections, whose calls pass a gate. A notification
// of either wakes the listeners of both.
func (d *DB) Through(g Gate) *DB {
	return &DB{pool: d.pool, postgres: d.postgres, memory: d.memory, pgConfig: d.pgConfig, foldICU: d.foldICU, log: d.log,
		write: d.write, notifier: d.notifier, statements: d.statements, gate: g}
}

// begin begins a call: the context to make it in, and what must be called with its
// result when it has ended.
func (d *DB) begin(ctx context.Context, query string, args []any) (context.Context, func(error) error) {
	bound, end := bounded(ctx)
	return passed(bound, end, d.gate, Call{Query: query, Args: args})
}

// begin is as the method of DB; a statement ends with its transaction at the latest.
func (t *Tx) begin(ctx context.Context, query string, args []any) (context.Context, func(error) error) {
	bound, end := t.bounded(ctx)
	return passed(bound, end, t.db.gate, Call{Query: query, Args: args, Tx: true})
}

func passed(ctx context.Context, end func(error) error, g Gate, c Call) (context.Context, func(error) error) {
	if g == nil {
		return ctx, end
	}
	ctx, after := g.Pass(ctx, c)
	return ctx, func(err error) error { return end(after(err)) }
}
