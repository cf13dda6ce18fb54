package db

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// Scanner reads one row.
type Scanner interface{ Scan(dest ...any) error }

// Lookup runs a read of a few rows by an index and calls row with each of them, from
// the first one again if the connection failed. The query's parameters, $1 to $9, are
// texts. It is for what clients ask for all day, in a [Prompt] context: its statement
// stays prepared, and on PostgreSQL lookups of several requests at once are one
// statement. What may take long is no lookup, since others may have to wait for it.
func (d *DB) Lookup(ctx context.Context, query string, keys []string, row func(Scanner) error) error {
	limit, prompt := ctx.Value(promptKey{}).(time.Duration)
	switch {
	case !prompt, d.memory:
		return d.lookUpAlone(ctx, query, keys, row)
	case !d.postgres:
		return d.readers.lookUp(ctx, d, query, keys, row)
	}
	l := &lookup{query: query, keys: keys, row: row, deadline: time.Now().Add(limit), ended: make(chan struct{})}
	d.lookups.add(l, d)
	late := time.AfterFunc(patience, func() { d.lookups.help(d) })
	// Its row is called elsewhere, so nothing but its end ends the wait; it has a
	// deadline.
	<-l.ended
	late.Stop()
	if l.alone {
		ctx, end := deadline(ctx, l.deadline)
		return end(d.lookUpAlone(ctx, query, keys, row))
	}
	return l.err
}

// lookUpAlone is a lookup as an ordinary read.
func (d *DB) lookUpAlone(ctx context.Context, query string, keys []string, row func(Scanner) error) error {
	rows, err := d.Query(ctx, query, texts(keys)...)
	if err != nil {
		return err
	}
	return each(rows, row)
}

func texts(keys []string) []any {
	args := make([]any, len(keys))
	for i, key := range keys {
		args[i] = key
	}
	return args
}

// lookup is one that waits for its turn on a PostgreSQL connection.
type lookup struct {
	query    string
	keys     []string
	row      func(Scanner) error
	deadline time.Time

	// What came of it, when ended is closed. alone says that nothing did, through
	// no fault of its own.
	ended    chan struct{}
	answered bool
	alone    bool
	err      error
}

// lookups share connections: those that come while one is under way go together, in
// the next round trip. Where one of them waits for longer, another connection helps.
type lookups struct {
	mu      sync.Mutex
	waiting []*lookup
	running int
	most    int // connections at a time
}

// patience is longer than a round trip to a database nearby.
const patience = 5 * time.Millisecond

// maxBatch bounds the lookups of one round trip.
const maxBatch = 64

func (q *lookups) add(l *lookup, d *DB) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, l)
	if q.running == 0 {
		q.running++
		go q.run(d)
	}
}

// help lets another connection answer what still waits.
func (q *lookups) help(d *DB) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) > 0 && q.running < q.most {
		q.running++
		go q.run(d)
	}
}

// run answers lookups until none waits.
func (q *lookups) run(d *DB) {
	for {
		runtime.Gosched() // requests that are here already shall come along
		q.mu.Lock()
		n := min(len(q.waiting), maxBatch)
		batch := q.waiting[:n:n]
		q.waiting = q.waiting[n:]
		if n == 0 {
			q.waiting, q.running = nil, q.running-1
		}
		q.mu.Unlock()
		if n == 0 {
			return
		}
		d.answer(batch)
	}
}

// answer sends lookups in one round trip. Those that are not answered, because
// one of them is at fault, had no time left, or the connection has gone, are left to
// be made alone, in the time that they have.
func (d *DB) answer(batch []*lookup) {
	ctx, end := deadline(context.Background(), batch[0].deadline)
	err := end(d.send(ctx, batch))
	if err != nil && errors.Is(err, ErrUnavailable) {
		d.tracer.count(ctx, err)
	}
	late := errors.Is(context.Cause(ctx), ErrUnavailable)
	for _, l := range batch {
		if !l.answered {
			l.err, l.alone = err, !late || time.Now().Before(l.deadline)
		}
		close(l.ended)
	}
}

func (d *DB) send(ctx context.Context, batch []*lookup) error {
	conn, err := d.pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Raw(func(raw any) error {
		var b pgx.Batch
		for query, alike := range byQuery(batch) {
			query, args := together(query, alike)
			b.Queue(query, args...).Query(func(rows pgx.Rows) error {
				for rows.Next() {
					// The number of the lookup that asked, a bigint in binary form.
					l := alike[binary.BigEndian.Uint64(rows.RawValues()[0])-1]
					if l.err == nil {
						l.err = l.row(answerRow{rows})
					}
				}
				rows.Close()
				for _, l := range alike {
					l.answered = rows.Err() == nil
				}
				return rows.Err()
			})
		}
		return raw.(*stdlib.Conn).Conn().SendBatch(ctx, &b).Close()
	})
}

// byQuery puts lookups of the same text together.
func byQuery(batch []*lookup) map[string][]*lookup {
	groups := make(map[string][]*lookup, 1)
	for _, l := range batch {
		groups[l.query] = append(groups[l.query], l)
	}
	return groups
}

// together is one statement for lookups of the same text, since to run one costs
// PostgreSQL more than to look at a row. Its rows begin with the number of the lookup
// that they answer, from 1. OFFSET 0 keeps it from joining whole tables, and the
// inner SELECTs from being planned anew for each number of lookups.
func together(query string, alike []*lookup) (string, []any) {
	arrays, columns, args := "", "", make([]any, len(alike[0].keys))
	for i := range args {
		column := make([]string, len(alike))
		for n, l := range alike {
			column[n] = l.keys[i]
		}
		args[i] = column
		arrays += fmt.Sprintf("(SELECT $%d::text[]), ", i+1)
		columns += fmt.Sprintf("k%d, ", i+1)
	}
	return `SELECT asked.n, answer.* FROM unnest(` + strings.TrimSuffix(arrays, ", ") + `) WITH ORDINALITY AS asked(` + columns + `n),
		LATERAL (` + strings.ReplaceAll(query, "$", "asked.k") + ` OFFSET 0) answer`, args
}

// answerRow is a row without the number before it.
type answerRow struct{ pgx.Rows }

func (r answerRow) Scan(dest ...any) error { return r.Rows.Scan(append([]any{nil}, dest...)...) }

// readers are connections to a SQLite file for lookups alone, with their prepared
// statements: to prepare one costs more than to run it.
type readers struct {
	free chan *reader
}

type reader struct {
	conn     *sql.Conn // nil until it is needed
	prepared map[string]*sql.Stmt
}

func newReaders() readers {
	r := readers{free: make(chan *reader, runtime.GOMAXPROCS(0))}
	for range cap(r.free) {
		r.free <- &reader{}
	}
	return r
}

func (r readers) lookUp(ctx context.Context, d *DB, query string, keys []string, row func(Scanner) error) error {
	var one *reader
	select {
	case one = <-r.free:
	default:
		waiting, end := bounded(ctx)
		select {
		case one = <-r.free:
			_ = end(nil)
		case <-waiting.Done():
			return end(context.Cause(waiting))
		}
	}
	defer func() { r.free <- one }()
	err := one.lookUp(ctx, d.pool, query, keys, row)
	if err != nil {
		one.close() // whatever it was, the next lookup begins with a new connection
	}
	return classified(ctx, err)
}

func (r readers) close() {
	for range cap(r.free) {
		one := <-r.free
		defer func() { r.free <- one }()
		one.close()
	}
}

func (r *reader) close() {
	if r.conn != nil {
		_ = r.conn.Close() // it only read
		r.conn = nil
	}
}

func (r *reader) lookUp(ctx context.Context, pool *sql.DB, query string, keys []string, row func(Scanner) error) (err error) {
	if r.conn == nil {
		ctx, end := bounded(ctx)
		r.conn, err = pool.Conn(ctx)
		if err = end(err); err != nil {
			return err
		}
		r.prepared = map[string]*sql.Stmt{}
	}
	// A reader of a file waits for no writer, and what can be cancelled takes two
	// goroutines more.
	ctx = context.WithoutCancel(ctx)
	statement := r.prepared[query]
	if statement == nil {
		if statement, err = r.conn.PrepareContext(ctx, query); err != nil {
			return err
		}
		r.prepared[query] = statement
	}
	rows, err := statement.QueryContext(ctx, texts(keys)...)
	if err != nil {
		return err
	}
	return each(rows, row)
}

// each calls row with every row and closes them.
func each(rows interface {
	Scanner
	Next() bool
	Err() error
	Close() error
}, row func(Scanner) error) error {
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
