package job_test

import (
	"context"
	"errors"
	"testing"

	"cutroom/internal/base/db"
	"cutroom/internal/testkit/jobtest"
	"cutroom/internal/work/idempotency"
	"cutroom/internal/work/job"
)

// Files stored for a job are removed only if the job certainly does not exist. They stay if the response to the commit
// was lost, because the commit may have inserted the job.
func TestEnqueueKnowsWhetherThereIsAJob(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, h *jobtest.Harness) {
		user, table := h.User(0), renders(h.DB, "")
		refused := errors.New("refused")
		for _, tt := range []struct {
			name   string
			commit func(ctx context.Context, cancel func(), tx *db.Tx) error // just before the commit
			unused bool
			err    error
		}{
			{name: "made", commit: func(context.Context, func(), *db.Tx) error { return nil }},
			{name: "refused", commit: func(context.Context, func(), *db.Tx) error { return refused }, unused: true, err: refused},
			{name: "perhaps", commit: func(_ context.Context, cancel func(), _ *db.Tx) error { cancel(); return nil }, err: context.Canceled},
			{name: "made in secret", commit: func(ctx context.Context, cancel func(), tx *db.Tx) error {
				defer cancel()
				_, err := tx.Exec(ctx, `COMMIT`) // takes effect, but the answer is lost
				return err
			}},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			table.Line = func(ctx context.Context, tx *db.Tx, _ []string) error { return tt.commit(ctx, cancel, tx) }
			answer, unused, err := table.Enqueue(ctx, idempotency.Key{}, job.New{ID: tt.name, UserID: user, State: "PENDING",
				Details: map[string]any{"spec": "{}", "output_kind": "video"}})
			cancel()
			if unused != tt.unused || !errors.Is(err, tt.err) || (answer == tt.name) != (tt.err == nil) {
				t.Errorf("%s: %q, unused %v, %v", tt.name, answer, unused, err)
			}
		}
	})
}
