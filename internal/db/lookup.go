package db

import (
	"context"
	"database/sql"
	"sync"
)

// Scanner reads one row.
type Scanner interface{ Scan(dest ...any) error }

// statements caches prepared statements by their text. The program has a fixed number of texts.
type statements struct {
	mu   sync.Mutex
	kept map[string]*sql.Stmt
}

// prepare returns the prepared statement of a query. It stays open until close.
func (p *statements) prepare(ctx context.Context, pool *sql.DB, query string) (*sql.Stmt, error) {
	p.mu.Lock()
	stmt := p.kept[query]
	p.mu.Unlock()
	if stmt != nil {
		return stmt, nil
	}
	stmt, err := pool.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if first := p.kept[query]; first != nil { // another caller was faster
		_ = stmt.Close()
		return first, nil
	}
	if p.kept == nil {
		p.kept = map[string]*sql.Stmt{}
	}
	p.kept[query] = stmt
	return stmt, nil
}

func (p *statements) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, stmt := range p.kept {
		_ = stmt.Close() // the pool is about to close
	}
	p.kept = nil
}

// Lookup runs a query that returns few rows and calls row with each. It keeps its statement prepared, so use it
// for the constant queries of the busiest requests: preparing costs more than running.
func (d *DB) Lookup(ctx context.Context, query string, keys []string, row func(Scanner) error) error {
	args := make([]any, len(keys))
	for i, key := range keys {
		args[i] = key
	}
	ctx, end := d.begin(ctx, query, args)
	stmt, err := d.statements.prepare(ctx, d.pool, query)
	if err != nil {
		return end(err)
	}
	rows, err := newRows(end)(stmt.QueryContext(ctx, args...))
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
