// Package db hides the differences between PostgreSQL and SQLite behind one small API.
//
// It owns the connection pool, transactions, the embedded migrations and the few operations that differ, such as
// [Tx.Lock], [DB.SkipLockedOf] and [Tx.Notify]. It contains no table of the domain. One SQL text serves both databases:
// $n placeholders, integers for times, and now_ms(), the database's clock in epoch milliseconds. All replicas compare
// leases against that clock, so their own clocks need not agree.
package db

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// Options selects the database to open.
type Options struct {
	// URL is postgres://, postgresql://, sqlite:///absolute/path.db, sqlite://relative/path.db or sqlite::memory:.
	URL string
	// User and Password override those of a PostgreSQL URL. SQLite ignores them.
	User, Password string
	// MaxPool bounds open connections (>= 1). An in-memory database has one.
	MaxPool int
	// Driver names another database/sql driver for SQLite, for tests; "" is the built-in one. All connections of the
	// other driver lead to one in-memory database.
	Driver   string
	Observer Observer // of PostgreSQL; may be nil
	Log      *slog.Logger
}

// Querier is a DB or a Tx, for functions that may run inside or outside a transaction.
type Querier interface {
	// Exec runs a statement and returns the number of affected rows.
	Exec(ctx context.Context, query string, args ...any) (int64, error)
	Query(ctx context.Context, query string, args ...any) (*Rows, error)
	QueryRow(ctx context.Context, query string, args ...any) *Row
}

// DB is an open database. It is safe for concurrent use.
type DB struct {
	pool     *sql.DB
	postgres bool
	pgConfig *pgx.ConnConfig
	foldICU  bool // see Fold
	log      *slog.Logger

	// write serialises the writers of a SQLite file in this process, so that they queue fairly instead of spinning on
	// the file lock. A send acquires it. PostgreSQL and an in-memory database need no lock and have none.
	write chan struct{}

	notifier *notifier
	reserved *DB // nil for an in-memory database, and for a reserved handle itself
}

// Open connects and checks the credentials. The caller closes the database. [DB.Migrate] applies migrations.
func Open(ctx context.Context, o Options) (*DB, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	d := &DB{log: o.Log, notifier: &notifier{}}
	var err error
	if strings.HasPrefix(o.URL, "sqlite:") {
		err = d.openSQLite(o)
	} else {
		err = d.openPostgres(o)
	}
	if err != nil {
		return nil, err
	}
	ping, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	if err := d.pool.PingContext(ping); err != nil {
		d.Close()
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	if d.postgres {
		if err := d.inspectServer(ping); err != nil {
			d.pool.Close()
			return nil, err
		}
		d.reserve(stdlib.OpenDB(*d.pgConfig))
	}
	return d, nil
}

// reservedPool is how many connections [DB.Reserved] has.
const reservedPool = 2

// Reserved returns a handle with connections of its own, for the few short statements that must not wait behind all
// others: the renewals of leases. An in-memory database has one connection for everything.
func (d *DB) Reserved() *DB {
	if d.reserved == nil {
		return d
	}
	return d.reserved
}

// reserve makes the handle of Reserved on a second pool of the same database.
func (d *DB) reserve(pool *sql.DB) {
	pool.SetMaxOpenConns(reservedPool)
	pool.SetMaxIdleConns(reservedPool)
	r := *d
	r.pool, d.reserved = pool, &r
}

// inspectServer finds out what the PostgreSQL server supports, and refuses a transaction pooler.
func (d *DB) inspectServer(ctx context.Context) error {
	c, err := d.connect(ctx)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer c.Close(ctx)
	var session uint32
	err = c.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_collation WHERE collname = 'und-x-icu'), pg_backend_pid()`,
		pgx.QueryExecModeSimpleProtocol).Scan(&d.foldICU, &session)
	if err != nil {
		return fmt.Errorf("look at the database: %w", err)
	}
	if session == c.PgConn().PID() {
		return nil // no pooler in between
	}
	return d.refusePooledTransactions(ctx, c)
}

// connect opens a PostgreSQL connection outside the pool.
func (d *DB) connect(ctx context.Context) (*pgx.Conn, error) {
	return pgx.ConnectConfig(ctx, d.pgConfig.Copy())
}

// Fold returns SQL that converts text to lower case, in any alphabet. A PostgreSQL database with the locale C folds
// only ASCII, so Fold names a Unicode collation if the server has one.
func (d *DB) Fold(text string) string {
	if d.foldICU {
		return `lower(` + text + ` COLLATE "und-x-icu")`
	}
	return "lower(" + text + ")"
}

// FoldASCII is Fold for ASCII letters only, which is much faster.
func (d *DB) FoldASCII(text string) string {
	if d.postgres {
		return `lower(` + text + ` COLLATE "C")`
	}
	return "lower(" + text + ")"
}

func (d *DB) openPostgres(o Options) error {
	cfg, err := pgx.ParseConfig(o.URL)
	if err != nil {
		return notParsed(o.URL)
	}
	cfg.Tracer = &tracer{o.Observer}
	cfg.User, cfg.Password = o.User, o.Password
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "cutroom"
	}
	// If a process freezes within a transaction, its connection stays open and would hold its locks. Our transactions
	// never pause between statements for long. Set the limit on the connection, because poolers refuse unknown
	// parameters in the startup message.
	if cfg.RuntimeParams["idle_in_transaction_session_timeout"] == "" {
		cfg.AfterConnect = func(ctx context.Context, c *pgconn.PgConn) error {
			return c.Exec(ctx, "SET idle_in_transaction_session_timeout = 10000").Close()
		}
	}
	// If several servers are listed, connect to the one that accepts writes, and leave time to try the next one if a
	// server does not answer.
	if cfg.ValidateConnect == nil {
		cfg.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connectTimeout
	}
	cfg.DialFunc = (&net.Dialer{Control: giveUpSilent}).DialContext
	d.postgres, d.pgConfig = true, cfg
	d.pool = stdlib.OpenDB(*cfg)
	d.pool.SetMaxOpenConns(max(1, o.MaxPool))
	d.pool.SetMaxIdleConns(max(1, o.MaxPool))
	d.pool.SetConnMaxIdleTime(5 * time.Minute)
	return nil
}

const (
	// connectTimeout bounds the attempt to connect to one server.
	connectTimeout = 3 * time.Second
	// silence is how long a server may leave bytes unacknowledged. A machine that lost power closes no connection, and
	// the kernel would retry for a quarter of an hour.
	silence = 20 * time.Second
)

// giveUpSilent makes the kernel close a connection whose peer no longer acknowledges bytes.
func giveUpSilent(network, _ string, raw syscall.RawConn) (err error) {
	if network == "unix" {
		return nil
	}
	failed := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silence.Milliseconds()))
	})
	return errors.Join(failed, err)
}

// notParsed explains why a PostgreSQL address is invalid. It repeats only the path of a certificate, because the rest
// may contain a password.
func notParsed(address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return errors.New("DATABASE_URL is not a valid PostgreSQL address")
	}
	for _, name := range []string{"sslrootcert", "sslcert", "sslkey"} {
		if path := u.Query().Get(name); path != "" {
			if f, err := os.Open(path); err != nil {
				return fmt.Errorf("DATABASE_URL: %s: %w", name, err)
			} else if err := f.Close(); err != nil {
				return fmt.Errorf("DATABASE_URL: %s: %w", name, err)
			}
		}
	}
	return errors.New("DATABASE_URL: a parameter is not valid (host, port, sslmode), or a file of sslrootcert, sslcert or sslkey holds no PEM")
}

func (d *DB) openSQLite(o Options) error {
	q := url.Values{}
	q.Set("_txlock", "immediate")
	q.Add("_pragma", "busy_timeout(8000)")
	q.Add("_pragma", "foreign_keys(1)")
	path, n := strings.TrimPrefix(strings.TrimPrefix(o.URL, "sqlite:"), "//"), max(2, o.MaxPool)+runtime.GOMAXPROCS(0)
	if path == ":memory:" {
		if o.Driver == "" {
			n = 1 // another connection would open its own empty database
		}
		q.Add("_pragma", "journal_mode(MEMORY)")
		path = "file:cutroom?mode=memory&" + q.Encode()
	} else {
		if dir := filepath.Dir(path); dir != "." {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return fmt.Errorf("create the database's folder: %w", err)
			}
		}
		// WAL lets readers work while a writer commits. With synchronous=FULL a committed charge survives a power cut,
		// not only a crash.
		q.Add("_pragma", "journal_mode(WAL)")
		q.Add("_pragma", "synchronous(FULL)")
		path = "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
		d.write = make(chan struct{}, 1)
	}
	pool, err := sql.Open(cmp.Or(o.Driver, sqliteDriver), path)
	if err != nil {
		return fmt.Errorf("open SQLite: %w", err)
	}
	d.pool = pool
	d.pool.SetMaxOpenConns(n)
	d.pool.SetMaxIdleConns(n)
	if d.write != nil {
		second, err := sql.Open(cmp.Or(o.Driver, sqliteDriver), path)
		if err != nil {
			return fmt.Errorf("open SQLite: %w", err)
		}
		d.reserve(second)
	}
	return nil
}

// Postgres reports whether this is PostgreSQL and not SQLite, for reports and tests. Differences in SQL belong in this
// package.
func (d *DB) Postgres() bool { return d.postgres }

// Close closes the pools. Running transactions fail.
func (d *DB) Close() error {
	if d.reserved != nil {
		return errors.Join(d.pool.Close(), d.reserved.pool.Close())
	}
	return d.pool.Close()
}

// Ping checks that the database answers.
func (d *DB) Ping(ctx context.Context) error { return d.pool.PingContext(ctx) }

// Answers checks that the database answers, on a new connection: all connections of the pool may be waiting for
// hanging commits.
func (d *DB) Answers(ctx context.Context) error {
	if !d.postgres {
		return d.Ping(ctx)
	}
	conn, err := d.connect(ctx)
	if err != nil {
		return err
	}
	return errors.Join(conn.Ping(ctx), conn.Close(ctx))
}

// Stats reports the pool's state, for metrics.
func (d *DB) Stats() sql.DBStats { return d.pool.Stats() }

// Exec runs one statement in its own transaction.
func (d *DB) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	var n int64
	err := d.writing(ctx, func(ctx context.Context) (err error) {
		n, err = rowsAffected(d.pool.ExecContext(ctx, query, args...))
		return err
	})
	return n, err
}

// writing runs a single statement that writes. Like a transaction, it runs again after a deadlock.
func (d *DB) writing(ctx context.Context, do func(ctx context.Context) error) error {
	return retry(ctx, func() error {
		ctx, end, err := enter(ctx)
		if err != nil {
			return err
		}
		if err := d.lockWrites(ctx); err != nil {
			return end(err)
		}
		defer d.unlockWrites()
		return end(do(ctx))
	})
}

func (d *DB) lockWrites(ctx context.Context) error {
	if d.write == nil {
		return nil
	}
	select {
	case d.write <- struct{}{}:
		return nil
	default:
	}
	began := time.Now()
	var err error
	select {
	case d.write <- struct{}{}:
	case <-ctx.Done():
		err = ctx.Err()
	}
	traceWait(ctx, "db wait for the writer", began, err)
	return err
}

func (d *DB) unlockWrites() {
	if d.write != nil {
		<-d.write
	}
}

// ExecRow runs one writing statement in its own transaction and scans the row that it returns. If there is none, the
// error is sql.ErrNoRows. ExecRow takes one round trip, a transaction three.
func (d *DB) ExecRow(ctx context.Context, query string, args []any, dest ...any) error {
	return d.writing(ctx, func(ctx context.Context) error {
		return d.pool.QueryRowContext(ctx, query, args...).Scan(dest...)
	})
}

// ExecTexts runs one writing statement in its own transaction and returns the only column of its rows.
func (d *DB) ExecTexts(ctx context.Context, query string, args ...any) (out []string, err error) {
	err = d.writing(ctx, func(ctx context.Context) error {
		unclassified := func(err error) error { return err } // writing classifies the error
		rows, err := d.pool.QueryContext(ctx, query, args...)
		out, err = Texts(newRows(rows, err, unclassified))
		return err
	})
	return out, err
}

// Query runs a read. Close or exhaust the rows before the next call, because an in-memory database has a single
// connection.
func (d *DB) Query(ctx context.Context, query string, args ...any) (*Rows, error) {
	ctx, end, err := enter(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := d.pool.QueryContext(ctx, query, args...)
	return newRows(rows, err, end)
}

// QueryRow runs a read that returns at most one row.
func (d *DB) QueryRow(ctx context.Context, query string, args ...any) *Row {
	ctx, end, err := enter(ctx)
	if err != nil {
		return &Row{err: err}
	}
	return &Row{row: d.pool.QueryRowContext(ctx, query, args...), end: end}
}

func rowsAffected(r sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// Time is a time in epoch milliseconds, the zero time for 0.
func Time(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
