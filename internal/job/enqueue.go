package job

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"cutroom/internal/db"
	"cutroom/internal/fault"
	"cutroom/internal/idempotency"
)

// Enqueue makes the row of a job in one transaction, and its id the answer to an
// idempotency key, which may be another job's by now. Unused says that there is no
// such row and will be none: what was stored for the job may go. After an error it
// stays unless that is certain, and a sweep decides when the outcome is.
func Enqueue(ctx context.Context, d *db.DB, log *slog.Logger, key idempotency.Key, table, id string, insert func(tx *db.Tx) error) (answer string, unused bool, err error) {
	inserted := false
	answer, first, err := idempotency.Once(ctx, d, key, func(tx *db.Tx) (string, error) {
		err := insert(tx)
		inserted = err == nil
		return id, err
	})
	switch {
	case err == nil:
		return answer, !first, nil
	case !inserted, fault.As(err) != nil:
		return "", true, err
	}
	// The error may have hidden that it was committed.
	look, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	var one int
	if d.QueryRow(look, fmt.Sprintf(`SELECT 1 FROM %s WHERE id = $1`, table), id).Scan(&one) == nil {
		log.Warn("the answer to a commit was lost; the job is there", "job", id, "err", err)
		return id, false, nil
	}
	return "", false, err
}
