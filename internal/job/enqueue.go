package job

import (
	"context"
	"time"

	"cutroom/internal/db"
	"cutroom/internal/fault"
	"cutroom/internal/idempotency"
)

// Enqueue inserts a job in one transaction, together with the answer to an idempotency
// key. The answer is the id of the job, or of an earlier one under the same key. Unused
// reports that the job does not exist and never will, so that the caller may delete
// what it stored for it. After an error whose outcome is unknown it stays false, and a
// sweep decides later.
func (t Table) Enqueue(ctx context.Context, key idempotency.Key, id string,
	insert func(tx *db.Tx) error) (answer string, unused bool, err error) {
	inserted := false
	answer, first, err := idempotency.Once(ctx, t.DB, key, func(tx *db.Tx) (string, error) {
		err := insert(tx)
		if err == nil {
			err = t.storeTrace(ctx, tx, id)
		}
		inserted = err == nil
		return id, err
	})
	switch {
	case err == nil:
		return answer, !first, nil
	case !inserted, fault.As(err) != nil:
		return "", true, err
	}
	// The transaction may have committed although its answer was lost.
	check, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	var one int
	if t.DB.QueryRow(check, `SELECT 1 FROM `+t.Name+` WHERE id = $1`, id).Scan(&one) == nil {
		t.Log.Warn("the answer to a commit was lost; the job is there", "job", id, "err", err)
		return id, false, nil
	}
	return "", false, err
}
