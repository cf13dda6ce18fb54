package job

import (
	"context"
	"time"

	"cutroom/internal/db"
	"cutroom/internal/fault"
	"cutroom/internal/idempotency"
)

// Enqueue runs insert, which inserts the job by [Table.Insert] and its details, in one
// transaction together with the answer to an idempotency key. The answer is the id of
// the job, or of an earlier one under the same key. Unused reports that the job does not
// exist and never will, so that the caller may delete what it stored for it. After an
// error whose outcome is unknown it stays false, and a sweep decides later.
func (t Table) Enqueue(ctx context.Context, key idempotency.Key, n New, insert func(tx *db.Tx) error) (answer string, unused bool, err error) {
	inserted := false
	answer, first, err := idempotency.Once(ctx, t.DB, key, func(tx *db.Tx) (string, error) {
		err := insert(tx)
		if err == nil {
			err = tx.Notify(ctx, t.Topic)
		}
		if err == nil {
			err = t.account(ctx, tx, "", n.State, moved{UserID: n.UserID})
		}
		inserted = err == nil
		return n.ID, err
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
	if t.DB.QueryRow(check, `SELECT 1 FROM jobs WHERE id = $1`, n.ID).Scan(&one) == nil {
		t.Log.Warn("the answer to a commit was lost; the job is there", "job", n.ID, "err", err)
		return n.ID, false, nil
	}
	return "", false, err
}
