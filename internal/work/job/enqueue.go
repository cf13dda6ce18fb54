package job

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/base/tracing"
	"cutroom/internal/work/idempotency"
	"cutroom/internal/work/quota"
	"cutroom/internal/work/user"
)

// New is a job that is not in the queue yet.
type New struct {
	ID, UserID, State string
	SourceDurationMs  int64
	StoredBytes       int64 // of files stored for this job alone
	// Reserve takes what the job needs, such as credits, or refuses the job. It runs in the transaction that inserts
	// the job, after the owner's account was locked; nil takes nothing.
	Reserve func(ctx context.Context, tx *db.Tx) error
	Details map[string]any // the columns of the kind's own row
	Holds   []string       // keys of the objects that it reads; see [Hold]
}

// NewID returns the id of a new job. Ids ascend with time.
func (t Table) NewID() string { return t.Prefix + uuid.Must(uuid.NewV7()).String() }

// Insert inserts a job into the queue.
func (t Table) Insert(ctx context.Context, tx *db.Tx, n New) error {
	// Take the queue's lock before any row, as claims do, so that the two cannot deadlock.
	if t.QueueLock != "" {
		if err := tx.Lock(ctx, t.QueueLock); err != nil {
			return err
		}
	}
	if err := user.Lock(ctx, tx, n.UserID); err != nil {
		return err
	}
	if n.Reserve != nil {
		if err := n.Reserve(ctx, tx); err != nil {
			return err
		}
	}
	if err := t.insertRows(ctx, tx, n); err != nil {
		return fmt.Errorf("insert job: %w", err)
	}
	if err := Hold(ctx, tx, n.ID, n.Holds...); err != nil {
		return err
	}
	if err := t.Quota.Check(ctx, tx, n.UserID, quota.Usage{}); err != nil {
		return err
	}
	if err := tx.Notify(ctx, WorkTopic(t.Kind)); err != nil {
		return err
	}
	return t.count(ctx, tx, "", n.State, moved{UserID: n.UserID})
}

func (t Table) insertRows(ctx context.Context, tx *db.Tx, n New) error {
	if _, err := tx.Exec(ctx, `INSERT INTO jobs (id, kind, user_id, state, source_duration_ms, stored_bytes, created_at, trace_parent)
		VALUES ($1, $2, $3, $4, $5, $6, now_ms(), NULLIF($7, ''))`,
		n.ID, t.Kind, n.UserID, n.State, n.SourceDurationMs, n.StoredBytes, tracing.Parent(ctx)); err != nil {
		return err
	}
	names, places, values := "job_id", "$1", []any{n.ID}
	for _, name := range slices.Sorted(maps.Keys(n.Details)) {
		values = append(values, n.Details[name])
		names += ", " + name
		places += fmt.Sprintf(", $%d", len(values))
	}
	_, err := tx.Exec(ctx, `INSERT INTO `+t.details()+` (`+names+`) VALUES (`+places+`)`, values...)
	return err
}

// Enqueue is [Table.Insert] in one transaction with the answer to an idempotency key. The answer is the id of the job,
// or of an earlier one under the same key. unused reports that the job does not exist and never will, so that the
// caller may delete what it stored for the job. If an error leaves the outcome unknown, unused is false and a sweep
// decides later.
func (t Table) Enqueue(ctx context.Context, key idempotency.Key, n New) (answer string, unused bool, err error) {
	inserted := false
	answer, first, err := idempotency.Once(ctx, t.DB, key, func(tx *db.Tx) (string, error) {
		err := t.Insert(ctx, tx, n)
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
	if found, _ := db.HasRow(check, t.DB, `SELECT 1 FROM jobs WHERE id = $1`, n.ID); found { // err is what counts
		t.Log.Warn("the answer to a commit was lost; the job is there", "job", n.ID, "err", err)
		return n.ID, false, nil
	}
	return "", false, err
}
