package db

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

var errPooledTransactions = errors.New("DATABASE_URL leads to a pooler that gives each transaction another session: " +
	"LISTEN, prepared statements and the lock of migrations need one of their own; let it pool sessions, or name the server itself")

// samples is the number of times that both backend PIDs are compared. A pooler hands out the most recently freed
// session, so an idle pooler is detected at once.
const samples = 20

// refusePooledTransactions returns errPooledTransactions if another connection shares the backend session of first, or
// if one of them changes its session.
func (d *DB) refusePooledTransactions(ctx context.Context, first *pgx.Conn) error {
	second, err := d.connect(ctx)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer second.Close(ctx)
	var seen [2]uint32
	for n := range samples {
		for i, conn := range []*pgx.Conn{first, second} {
			var session uint32
			if err := conn.QueryRow(ctx, `SELECT pg_backend_pid()`, pgx.QueryExecModeSimpleProtocol).Scan(&session); err != nil {
				return fmt.Errorf("look for a pooler: %w", err)
			}
			if n > 0 && session != seen[i] || session == seen[1-i] {
				return errPooledTransactions
			}
			seen[i] = session
		}
	}
	return nil
}
