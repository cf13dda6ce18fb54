// Package db puts PostgreSQL and SQLite behind one small set of calls.
//
// It owns the connection pool, transactions, the embedded migrations and the
// few differences between the two databases, each under a name that says what
// it means: [Tx.Lock], [DB.SkipLockedOf], [Tx.Notify]. It knows no table of the
// domain. One SQL text serves both: $n placeholders, integers for time, and
// now_ms(), the database's clock in epoch milliseconds, which is a function in
// both. Because every replica compares leases against that one clock, replicas
// need no synchronised clocks of their own.
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

// Options says which database to open.
type Options struct {
	// URL is postgres://, postgresql://, sqlite:///absolute/path.db,
	// sqlite://relative/path.db or sqlite::memory:.
	URL string
	// User and Password replace those of a PostgreSQL URL. SQLite ignores them.
	User, Password string
	// MaxPool bounds open connections (>= 1). An in-memory database has one.
	MaxPool int
	// Driver names another database/sql driver for SQLite, for tests; "" is the built-in one.
	Driver string
	Log    *slog.Logger
}

// Querier is what both a DB and a Tx can do. Functions that may run inside or
// outside of a transaction take it.
type Querier interface {
	// Exec runs a statement and returns the number of rows it touched.
	Exec(ctx context.Context, query string, args ...any) (int64, error)
	Query(ctx context.Context, query string, args ...any) (*Rows, error)
	QueryRow(ctx context.Context, query string, args ...any) *Row
}

// DB is an open database. It is safe for concurrent use.
type DB struct {
	pool     *sql.DB
	postgres bool
	memory   bool
	pgConfig *pgx.ConnConfig
	foldICU  bool // see Fold
	log      *slog.Logger
	tracer   tracer

	// write serialises SQLite transactions inside the process, so that they
	// queue fairly here instead of spinning on the file lock. A send takes it.
	write chan struct{}

	notifier   *notifier
	statements *statements
	gate       Gate // nil: calls pass freely
}

// Open connects, proves that the credentials work, and returns the database.
// The caller closes it. Migrations are applied by [DB.Migrate].
func Open(ctx context.Context, o Options) (*DB, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	d := &DB{log: o.Log, write: make(chan struct{}, 1), notifier: &notifier{}, statements: &statements{}}
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
		d.pool.Close()
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	if d.postgres {
		if err := d.lookAtServer(ping); err != nil {
			d.pool.Close()
			return nil, err
		}
	}
	return d, nil
}

// lookAtServer learns what a PostgreSQL server can do, and refuses a way to it that
// cannot do enough.
func (d *DB) lookAtServer(ctx context.Context) error {
	conn, err := d.pool.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer conn.Close()
	return conn.Raw(func(raw any) error {
		c := raw.(*stdlib.Conn).Conn()
		var session uint32
		err := c.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_collation WHERE collname = 'und-x-icu'), pg_backend_pid()`,
			pgx.QueryExecModeSimpleProtocol).Scan(&d.foldICU, &session)
		if err != nil {
			return fmt.Errorf("look at the database: %w", err)
		}
		if session == c.PgConn().PID() {
			return nil // nobody is in between
		}
		return d.refusePooledTransactions(ctx)
	})
}

// Fold is the SQL of a text in lower case, whatever alphabet it is in. A
// PostgreSQL database of the locale C knows the letters of ASCII alone, so that
// Unicode's own rules are named where the server has them.
func (d *DB) Fold(text string) string {
	if d.foldICU {
		return `lower(` + text + ` COLLATE "und-x-icu")`
	}
	return "lower(" + text + ")"
}

// FoldASCII is Fold where other letters than those of ASCII do not matter, in a
// fraction of its time.
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
	cfg.Tracer = &d.tracer
	cfg.User, cfg.Password = o.User, o.Password
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "cutroom"
	}
	// A process that freezes within a transaction would keep its locks, which
	// others wait for, as long as its connection seems alive. No transaction of
	// ours waits for anything but the database, so none is idle for long.
	// It is set on the connection: a pooler refuses what it does not know in the
	// startup message.
	if cfg.RuntimeParams["idle_in_transaction_session_timeout"] == "" {
		cfg.AfterConnect = func(ctx context.Context, c *pgconn.PgConn) error {
			return c.Exec(ctx, "SET idle_in_transaction_session_timeout = 10000").Close()
		}
	}
	// Of several servers the one that takes writes is meant, not a standby, and one
	// that is silent leaves time to try the next.
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
	// silence is how long a server's machine may leave bytes unacknowledged. One
	// that lost its power does not say goodbye, and the kernel would wait for it for
	// a quarter of an hour.
	silence = 20 * time.Second
)

// giveUpSilent ends a connection to a machine that has gone.
func giveUpSilent(network, _ string, raw syscall.RawConn) (err error) {
	if network == "unix" {
		return nil
	}
	failed := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silence.Milliseconds()))
	})
	return errors.Join(failed, err)
}

// notParsed says what is wrong with a PostgreSQL address, of which it repeats the
// path of a certificate alone: the rest may hold a password.
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
	path := sqlitePath(o.URL)
	if path == ":memory:" {
		d.memory = true
		q.Add("_pragma", "journal_mode(MEMORY)")
		path = "file:cutroom?mode=memory&" + q.Encode()
	} else {
		if dir := filepath.Dir(path); dir != "." {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return fmt.Errorf("create the database's folder: %w", err)
			}
		}
		// WAL lets readers go on beside the writer. synchronous=FULL makes a
		// committed charge survive a power cut, not only a crash.
		q.Add("_pragma", "journal_mode(WAL)")
		q.Add("_pragma", "synchronous(FULL)")
		path = "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
	}
	pool, err := sql.Open(cmp.Or(o.Driver, sqliteDriver), path)
	if err != nil {
		return fmt.Errorf("open SQLite: %w", err)
	}
	d.pool = pool
	n := max(2, o.MaxPool) + runtime.GOMAXPROCS(0)
	if d.memory {
		n = 1 // every further connection would see its own empty database
	}
	d.pool.SetMaxOpenConns(n)
	d.pool.SetMaxIdleConns(n)
	d.pool.SetConnMaxLifetime(0)
	return nil
}

// sqlitePath turns sqlite:///abs, sqlite://rel and sqlite::memory: into a path.
func sqlitePath(raw string) string {
	p := strings.TrimPrefix(raw, "sqlite:")
	p = strings.TrimPrefix(p, "//")
	return p
}

// Postgres reports whether this is PostgreSQL (else SQLite). For reports and
// tests; SQL differences belong in this package.
func (d *DB) Postgres() bool { return d.postgres }

// Close closes the pool. Transactions under way fail.
func (d *DB) Close() error {
	d.statements.close()
	return d.pool.Close()
}

// Ping checks that the database answers.
func (d *DB) Ping(ctx context.Context) error { return d.pool.PingContext(ctx) }

// Answers asks for an answer on a connection of its own: those of the pool may all wait for
// commits that hang.
func (d *DB) Answers(ctx context.Context) error {
	if !d.postgres {
		return d.Ping(ctx)
	}
	conn, err := pgx.ConnectConfig(ctx, d.pgConfig.Copy())
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
	err := d.writing(ctx, query, args, func(ctx context.Context) (err error) {
		n, err = rowsAffected(d.pool.ExecContext(ctx, query, args...))
		return err
	})
	return n, err
}

// writing runs a single statement that writes.
func (d *DB) writing(ctx context.Context, query string, args []any, do func(ctx context.Context) error) error {
	ctx, end := d.begin(ctx, query, args)
	if !d.postgres && !d.memory {
		if err := d.lockWrites(ctx); err != nil {
			return end(err)
		}
		defer d.unlockWrites()
	}
	return end(do(ctx))
}

func (d *DB) lockWrites(ctx context.Context) error {
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

func (d *DB) unlockWrites() { <-d.write }

// ExecRow runs one writing statement in its own transaction and scans the row
// that it returns; without one the error is sql.ErrNoRows. It is one round trip,
// where a transaction takes three.
func (d *DB) ExecRow(ctx context.Context, query string, args []any, dest ...any) error {
	return d.writing(ctx, query, args, func(ctx context.Context) error {
		return d.pool.QueryRowContext(ctx, query, args...).Scan(dest...)
	})
}

// ExecTexts runs one writing statement in its own transaction and reads the only
// column of the rows that it returns.
func (d *DB) ExecTexts(ctx context.Context, query string, args ...any) (out []string, err error) {
	err = d.writing(ctx, query, args, func(ctx context.Context) (err error) {
		out, err = Texts(newRows(func(err error) error { return err })(d.pool.QueryContext(ctx, query, args...)))
		return err
	})
	return out, err
}

// Query runs a read. Close or exhaust the rows before the next call: an
// in-memory database has a single connection.
func (d *DB) Query(ctx context.Context, query string, args ...any) (*Rows, error) {
	ctx, end := d.begin(ctx, query, args)
	return newRows(end)(d.pool.QueryContext(ctx, query, args...))
}

// QueryRow runs a read that returns at most one row.
func (d *DB) QueryRow(ctx context.Context, query string, args ...any) *Row {
	ctx, end := d.begin(ctx, query, args)
	return &Row{d.pool.QueryRowContext(ctx, query, args...), end}
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
