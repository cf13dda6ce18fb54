// Transactions: commit and repeat after a deadlock, locks on rows and on names, notifications, and the errors that a
// statement may cause.

package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Tx is a transaction. While one is open, its goroutine must not use the DB.
type Tx struct {
	tx       *sql.Tx
	end      time.Time // of every statement, if limited
	limited  bool
	db       *DB
	onCommit []string // topics to notify after the commit (SQLite)
}

// InTx runs fn in one transaction and commits if fn returns nil. After a deadlock or serialisation failure it runs fn
// again, at most three times in total, so fn must have no effect outside the transaction.
func (d *DB) InTx(ctx context.Context, fn func(tx *Tx) error) error {
	return retry(ctx, func() error { return d.inTxOnce(ctx, fn) })
}

// retry calls run, at most three times, until it returns anything but a deadlock or serialisation failure.
func retry(ctx context.Context, run func() error) error {
	var err error
	for attempt := range 3 {
		if attempt > 0 {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(time.Duration(attempt) * 20 * time.Millisecond):
			}
		}
		if err = run(); err == nil || !retryable(err) {
			return err
		}
	}
	return err
}

func (d *DB) inTxOnce(ctx context.Context, fn func(tx *Tx) error) error {
	limit, limited := limitOf(ctx)
	ctx, end, err := enter(ctx)
	if err != nil {
		return err
	}
	defer end(nil)
	if err := d.lockWrites(ctx); err != nil {
		return end(err)
	}
	defer d.unlockWrites()
	raw, err := d.pool.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", end(err))
	}
	tx := &Tx{tx: raw, end: limit, limited: limited, db: d}
	committed := false
	defer func() {
		if !committed {
			// The error that caused the rollback matters more than a failed rollback.
			_ = raw.Rollback()
		}
	}()
	if err := fn(tx); err != nil {
		return err
	}
	if err := raw.Commit(); err != nil {
		return fmt.Errorf("commit: %w", end(err))
	}
	committed = true
	for _, topic := range tx.onCommit {
		d.notifier.notify(topic)
	}
	return nil
}

// Exec runs a statement and returns the number of affected rows.
func (t *Tx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	ctx, end := t.bounded(ctx)
	n, err := rowsAffected(t.tx.ExecContext(ctx, query, args...))
	return n, end(err)
}

// Query runs a read. Close or exhaust the rows before the next call.
func (t *Tx) Query(ctx context.Context, query string, args ...any) (*Rows, error) {
	ctx, end := t.bounded(ctx)
	rows, err := t.tx.QueryContext(ctx, query, args...)
	return newRows(rows, err, end)
}

// QueryRow runs a read that returns at most one row.
func (t *Tx) QueryRow(ctx context.Context, query string, args ...any) *Row {
	ctx, end := t.bounded(ctx)
	return &Row{row: t.tx.QueryRowContext(ctx, query, args...), end: end}
}

// Lock acquires a named lock across all replicas until the transaction ends. Use it for rules across rows ("at most two
// in flight"), where counting and then claiming would race. It does nothing for SQLite, whose single writer excludes
// all others.
func (t *Tx) Lock(ctx context.Context, name string) error {
	if !t.db.postgres {
		return nil
	}
	if _, err := t.Exec(ctx, takeLock, lockNumber(name)); err != nil {
		return fmt.Errorf("lock %s: %w", name, err)
	}
	return nil
}

const takeLock = `SELECT pg_advisory_xact_lock($1)`

func lockNumber(name string) int64 {
	h := fnv.New64a()
	h.Write([]byte("cutroom:" + name))
	return int64(h.Sum64())
}

// SkipLockedOf returns the suffix of a SELECT that claims rows of the named table or alias: it skips rows that
// another claimer has locked. SQLite's single writer needs no suffix.
func (d *DB) SkipLockedOf(alias string) string {
	if d.postgres {
		return " FOR UPDATE OF " + alias + " SKIP LOCKED"
	}
	return ""
}

// SkipLockedOf is [DB.SkipLockedOf].
func (t *Tx) SkipLockedOf(alias string) string { return t.db.SkipLockedOf(alias) }

// ForUpdate returns the suffix of a SELECT that locks its rows, because the transaction will change them.
func (t *Tx) ForUpdate() string {
	if t.db.postgres {
		return " FOR UPDATE"
	}
	return ""
}

// Notify wakes every listener of the topics, on every replica, if the transaction commits.
func (t *Tx) Notify(ctx context.Context, topics ...string) error {
	if !t.db.postgres {
		t.onCommit = append(t.onCommit, topics...)
		return nil
	}
	channels := make([]string, len(topics))
	for i, topic := range topics {
		channels[i] = channelOf(topic)
	}
	_, err := t.Exec(ctx, `SELECT pg_notify(channel, topic) FROM unnest($1::text[], $2::text[]) AS n (channel, topic)`,
		channels, topics)
	if err != nil {
		return fmt.Errorf("notify %v: %w", topics, err)
	}
	return nil
}

// IsNoRows reports whether a read found no row.
func IsNoRows(err error) bool { return errors.Is(err, sql.ErrNoRows) }

// IsForeignKey reports whether err violates a foreign key: the referenced row does not exist.
func IsForeignKey(err error) bool {
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return pe.Code == "23503"
	}
	var se *sqlite.Error
	return errors.As(err, &se) && se.Code() == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY
}

// retryable reports a deadlock or serialisation failure: nothing was written, and the same transaction may succeed now.
func retryable(err error) bool {
	var pe *pgconn.PgError
	return errors.As(err, &pe) && (pe.Code == "40P01" || pe.Code == "40001")
}
