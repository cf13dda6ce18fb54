package job_test

import (
	"context"
	"errors"
	"testing"

	"cutroom/internal/db"
	"cutroom/internal/idempotency"
	"cutroom/internal/jobtest"
)

// Files stored for a job are removed only if the job certainly does not exist. They stay if the response to
// the commit was lost, because the commit may have inserted the job.
func TestEnqueueKnowsWhetherThereIsAJob(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, h *jobtest.Harness) {
		const insert = `INSERT INTO chores (id, fence) VALUES ($1, 0)`
		refused := errors.New("refused")
		for _, tt := range []struct {
			name   string
			work   func(ctx context.Context, cancel func(), tx *db.Tx, id string) error
			unused bool
			err    error
		}{
			{name: "made", work: func(ctx context.Context, _ func(), tx *db.Tx, id string) error {
				_, err := tx.Exec(ctx, insert, id)
				return err
			}},
			{name: "refused", work: func(context.Context, func(), *db.Tx, string) error { return refused }, unused: true, err: refused},
			{name: "perhaps", work: func(_ context.Context, cancel func(), _ *db.Tx, _ string) error { cancel(); return nil }, err: context.Canceled},
			{name: "made in secret", work: func(ctx context.Context, cancel func(), _ *db.Tx, id string) error {
				defer cancel()
				_, err := h.DB.Exec(ctx, insert, id) // as if the lost commit had taken effect
				return err
			}},
		} {
			if tt.name == "made in secret" && !h.DB.Postgres() {
				continue // SQLite has one writer
			}
			ctx, cancel := context.WithCancel(t.Context())
			answer, unused, err := chores(h.DB, "").Enqueue(ctx, idempotency.Key{}, tt.name,
				func(tx *db.Tx) error { return tt.work(ctx, cancel, tx, tt.name) })
			cancel()
			if unused != tt.unused || !errors.Is(err, tt.err) || (answer == tt.name) != (tt.err == nil) {
				t.Errorf("%s: %q, unused %v, %v", tt.name, answer, unused, err)
			}
		}
	})
}
