// The simulated database: in-memory SQLite whose calls wait for their turn in the scheduler.

package simulation

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"

	"cutroom/internal/base/db"
)

// driverName is the driver whose calls pass the scheduler.
const driverName = "sqlite-scheduled"

func init() {
	pool, err := sql.Open("sqlite", "") // the driver that knows now_ms()
	if err != nil {
		panic(err)
	}
	sql.Register(driverName, &scheduledDriver{inner: pool.Driver()})
}

// scheduledDriver opens one in-memory database, to which all its connections lead. A call of a replica waits for its
// turn in its connection, and the calls of a transaction are one step, so the calls do not meet in the database.
type scheduledDriver struct {
	inner  driver.Driver
	mu     sync.Mutex
	memory *keepingConn
}

func (d *scheduledDriver) Open(name string) (driver.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.memory == nil {
		c, err := d.inner.Open(name)
		if err != nil {
			return nil, err
		}
		d.memory = &keepingConn{Conn: c, kept: map[string]driver.Stmt{}}
	}
	return &scheduledConn{keepingConn: d.memory}, nil
}

// keepingConn keeps its prepared statements. Preparing takes most of the time of a small statement.
type keepingConn struct {
	driver.Conn
	kept map[string]driver.Stmt
}

func (c *keepingConn) stmt(ctx context.Context, query string) (driver.Stmt, error) {
	if s := c.kept[query]; s != nil {
		return s, nil
	}
	s, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err == nil {
		c.kept[query] = s
	}
	return s, err
}

// scheduledConn lets the calls of the replica in their context pass the scheduler first. Other calls, such as those of
// the judge, are made at once.
type scheduledConn struct {
	*keepingConn
	tx *replica // whose transaction is open, or nil
}

// replicaKey is the context key of the replica that makes a call.
type replicaKey struct{}

// context returns a context in which calls to the database are those of the replica.
func (r *replica) context(parent context.Context) context.Context {
	return context.WithValue(parent, replicaKey{}, r)
}

// pass waits for the turn of a call. It returns the context in which to make the call, and a function that maps the
// call's error.
func (c *scheduledConn) pass(ctx context.Context, query string, args []driver.NamedValue) (context.Context, func(error) error, error) {
	calm := context.WithoutCancel(ctx)
	r, ours := ctx.Value(replicaKey{}).(*replica)
	if !ours {
		return calm, same, nil
	}
	if c.tx != nil {
		after, err := r.passInTx(query)
		return calm, after, err
	}
	after, err := r.pass(ctx, query, args)
	return calm, after, err
}

func (c *scheduledConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	ctx, after, err := c.pass(ctx, query, args)
	if err != nil {
		return nil, err
	}
	s, err := c.stmt(ctx, query)
	if err != nil {
		return nil, err
	}
	result, err := s.(driver.StmtExecContext).ExecContext(ctx, args)
	return result, after(err)
}

func (c *scheduledConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	ctx, after, err := c.pass(ctx, query, args)
	if err != nil {
		return nil, err
	}
	s, err := c.stmt(ctx, query)
	if err != nil {
		return nil, err
	}
	rows, err := s.(driver.StmtQueryContext).QueryContext(ctx, args)
	if lost := after(err); lost != nil {
		if err == nil {
			lost = errors.Join(lost, rows.Close())
		}
		return nil, lost
	}
	return rows, nil
}

func (c *scheduledConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	calm, after, err := c.pass(ctx, begin, nil)
	if err != nil {
		return nil, err
	}
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(calm, o)
	if err == nil {
		c.tx, _ = ctx.Value(replicaKey{}).(*replica)
	}
	return &scheduledTx{tx, c}, after(err)
}

func (c *scheduledConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	return c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
}

// Close leaves the database open.
func (c *scheduledConn) Close() error { return nil }

type scheduledTx struct {
	driver.Tx
	conn *scheduledConn
}

func (t *scheduledTx) Commit() error {
	r := t.conn.tx
	t.conn.tx = nil
	if r == nil {
		return t.Tx.Commit()
	}
	after, err := r.passInTx("COMMIT")
	if err != nil {
		return errors.Join(err, t.Tx.Rollback())
	}
	return after(t.Tx.Commit())
}

func (t *scheduledTx) Rollback() error {
	t.conn.tx = nil
	return t.Tx.Rollback()
}

// database is the one database of the process. Every schedule empties it.
type database struct {
	*db.DB
	empty []string // the statements that restore its state after the migrations
}

var openDatabase = sync.OnceValues(func() (*database, error) {
	ctx := context.Background()
	d, err := db.Open(ctx, db.Options{URL: "sqlite::memory:", Driver: driverName, MaxPool: 1000})
	if err != nil {
		return nil, err
	}
	// Each write copies its page for a rollback, so small pages are faster.
	if _, err := d.Exec(ctx, `PRAGMA page_size = 1024`); err != nil {
		return nil, err
	}
	if err := d.Migrate(ctx); err != nil {
		return nil, err
	}
	// The migrations fill no other table. A table refers only to older ones, so the newest is emptied first.
	empty, err := db.Texts(d.Query(ctx, `SELECT 'DELETE FROM ' || name FROM sqlite_master
		WHERE type = 'table' AND name NOT IN ('goose_db_version', 'separation_pause') ORDER BY rowid DESC`))
	return &database{d, append(empty, `UPDATE separation_pause SET until_ms = 0, refusals = 0`)}, err
})

// reset empties the database. It leaves foreign keys on: each change of that pragma would discard all prepared
// statements.
func (d *database) reset(ctx context.Context) error {
	return d.InTx(ctx, func(tx *db.Tx) error {
		for _, statement := range d.empty {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	})
}
