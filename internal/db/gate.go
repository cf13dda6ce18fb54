package db

import "context"

// Gate intercepts every call of a [DB]. A simulation uses it to decide when each call is made, whether it
// fails, and whether its result is lost.
type Gate interface {
	// Pass is called before each call. The call runs in the returned context, unless that context has ended.
	// The returned function maps the call's error; it may be called more than once.
	Pass(ctx context.Context, c Call) (context.Context, func(error) error)
}

// Call is a statement, or a transaction's begin or commit.
type Call struct {
	Query string
	Args  []any
	Tx    bool // within a transaction, or its commit
}

// Call.Query of a begin and of a commit.
const beginTx, commitTx = "BEGIN", "COMMIT"

// Through returns a DB on the same connections, whose calls pass a gate. A notification through either DB wakes
// the listeners of both.
func (d *DB) Through(g Gate) *DB {
	return &DB{pool: d.pool, postgres: d.postgres, memory: d.memory, pgConfig: d.pgConfig, foldICU: d.foldICU, log: d.log,
		write: d.write, notifier: d.notifier, gate: g}
}

// begin returns the context of a call, and a function to call with the call's error.
func (d *DB) begin(ctx context.Context, query string, args []any) (context.Context, func(error) error) {
	bound, end := bounded(ctx)
	return passed(bound, end, d.gate, Call{Query: query, Args: args})
}

// begin is like the method of DB, with the transaction's deadline.
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
