// An outage of the database: the limits on a call's time, which errors count as ErrUnavailable, and the readers of
// rows, which classify the errors of a read the same way.

package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// ErrUnavailable is wrapped by every error that the statement did not cause: the database cannot be reached,
// refuses connections, or does not answer within the time that [WithLimit] allows.
var ErrUnavailable = errors.New("the database does not answer")

type limitKey struct{}

// WithLimit returns a context that bounds every statement and every transaction, including the wait for a
// connection. Use it where a client waits or a lease runs out; sweeps set no limit.
func WithLimit(ctx context.Context, limit time.Duration) context.Context {
	return context.WithValue(ctx, limitKey{}, limit)
}

// Gate admits a call to the database, or waits until it may. It returns an error if the context ends first, or if it
// refuses the call. The call leaves the gate when it has ended.
type Gate func(ctx context.Context) (leave func(), err error)

type gateKey struct{}

// WithGate returns a context whose statements and transactions pass a gate before they take a connection. Those within
// a transaction do not: it has its connection already.
func WithGate(ctx context.Context, g Gate) context.Context {
	return context.WithValue(ctx, gateKey{}, g)
}

// enter is bounded for a call that takes a connection: the call first passes the context's gate. The wait at the gate
// counts towards the limit.
func enter(ctx context.Context) (context.Context, func(error) error, error) {
	ctx, end := bounded(ctx)
	gate, gated := ctx.Value(gateKey{}).(Gate)
	if !gated {
		return ctx, end, nil
	}
	leave, err := gate(ctx)
	if err != nil {
		return ctx, end, end(err)
	}
	leave = sync.OnceFunc(leave)
	return ctx, func(err error) error {
		defer leave()
		return end(err)
	}, nil
}

// bounded returns the context of a call, and a function to call with the call's error.
func bounded(ctx context.Context) (context.Context, func(error) error) {
	end, limited := limitOf(ctx)
	return until(ctx, end, limited)
}

// limitOf returns the time by which a call that begins now must end.
func limitOf(ctx context.Context) (end time.Time, limited bool) {
	limit, limited := ctx.Value(limitKey{}).(time.Duration)
	return time.Now().Add(limit), limited
}

// bounded is the function bounded with the transaction's deadline.
func (t *Tx) bounded(ctx context.Context) (context.Context, func(error) error) {
	return until(ctx, t.end, t.limited)
}

func until(ctx context.Context, end time.Time, limited bool) (context.Context, func(error) error) {
	cancel := func() {}
	if limited {
		ctx, cancel = context.WithDeadlineCause(ctx, end, ErrUnavailable)
	}
	return ctx, func(err error) error {
		defer cancel()
		return classified(ctx, err)
	}
}

// classified wraps ErrUnavailable around errors that mean that the database is unavailable.
func classified(ctx context.Context, err error) error {
	switch {
	case err == nil, errors.Is(err, ErrUnavailable), errors.Is(err, sql.ErrNoRows):
		return err
	case errors.Is(context.Cause(ctx), ErrUnavailable):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	case ctx.Err() != nil: // the caller's context ended
		return err
	case unavailable(err):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}

// unavailableCodes are the SQLSTATEs of PostgreSQL, or their beginnings, for which the statement is not to blame.
var unavailableCodes = []string{
	"08",             // connection exceptions
	"25006",          // a standby, which accepts no writes
	"25P03", "25P04", // the server ended a transaction that idled or took too long
	"53",    // no disk, memory or connections left
	"55P03", // lock_timeout
	"57014", // statement_timeout, or cancelled by an operator; classified has already checked the caller's context
	"57P0",  // the server starts, stops or closed the session
	"58",    // a system error of the server
}

func unavailable(err error) bool {
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok {
		return slices.ContainsFunc(unavailableCodes, func(prefix string) bool { return strings.HasPrefix(answer.Code, prefix) })
	}
	if answer, ok := errors.AsType[*sqlite.Error](err); ok {
		return slices.Contains([]int{sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM}, answer.Code()&0xff)
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	// A connection that was reset as the pool handed it out is closed before the statement reaches it.
	return errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, driver.ErrBadConn) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}

// Scanner reads one row.
type Scanner interface{ Scan(dest ...any) error }

// Row is the result of a read of at most one row.
type Row struct {
	row *sql.Row
	end func(error) error
	err error // of a call that did not pass the gate
}

// Scan reads the row. If there is none, the error is sql.ErrNoRows. Every Row must be scanned.
func (r *Row) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	return r.end(r.row.Scan(dest...))
}

// Rows is the result of a read.
type Rows struct {
	*sql.Rows
	end func(error) error
}

// newRows returns the result of a query. end classifies its errors, including those of the rows.
func newRows(rows *sql.Rows, err error, end func(error) error) (*Rows, error) {
	if err != nil {
		return nil, end(err)
	}
	return &Rows{rows, end}, nil
}

// Close ends the read.
func (r *Rows) Close() error { return r.end(r.Rows.Close()) }

// Err returns the error that ended the read before its last row. Call it before Close.
func (r *Rows) Err() error { return r.end(r.Rows.Err()) }

// HasRow reports whether a query returns a row. Its only column is a number.
func HasRow(ctx context.Context, q Querier, query string, args ...any) (bool, error) {
	err := q.QueryRow(ctx, query, args...).Scan(new(int))
	if IsNoRows(err) {
		return false, nil
	}
	return err == nil, err
}

// Texts returns the values of a query's only column, and closes its rows.
func Texts(rows *Rows, err error) ([]string, error) {
	out := []string{}
	err = each(rows, err, func(row *Rows) error {
		var v string
		err := row.Scan(&v)
		out = append(out, v)
		return err
	})
	return out, err
}

// All runs a query and returns its rows. The slice is never nil.
func All[T any](ctx context.Context, q Querier, scan func(Scanner) (T, error), query string, args ...any) ([]T, error) {
	out := []T{}
	err := Each(ctx, q, func(row *Rows) error {
		one, err := scan(row)
		out = append(out, one)
		return err
	}, query, args...)
	return out, err
}

// Each runs a query and calls row with each of its rows.
func Each(ctx context.Context, q Querier, row func(*Rows) error, query string, args ...any) error {
	rows, err := q.Query(ctx, query, args...)
	return each(rows, err, row)
}

func each(rows *Rows, err error, row func(*Rows) error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
