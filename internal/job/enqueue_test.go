package job_test

import (
	"context"
	"errors"
	"testing"

	"cutroom/internal/db"
	"cutroom/internal/idempotency"
	"cutroom/internal/job"
	"cutroom/internal/jobtest"
)

// Files stored for a job are removed only if the job certainly does not exist. They stay if the response to
// the commit was lost, because the commit may have inserted the job.
func TestEnqueueKnowsWhetherThereIsAJob(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, h *jobtest.Harness) {
		user, table := h.User(0), renders(h.DB, "")
		n := func(id string) job.New { return job.New{ID: id, UserID: user, State: "PENDING"} }
		refused := errors.New("refused")
		for _, tt := range []struct {
			name   string
			work   func(ctx context.Context, cancel func(), tx *db.Tx, id string) error
			unused bool
			err    error
		}{
			{name: "made", work: func(ctx context.Context, _ func(), tx *db.Tx, id string) error {
				return table.Insert(ctx, tx, n(id))
			}},
			{name: "refused", work: func(context.Context, func(), *db.Tx, string) error { return refused }, unused: true, err: refused},
			{name: "perhaps", work: func(_ context.Context, cancel func(), _ *db.Tx, _ string) error { cancel(); return nil }, err: context.Canceled},
			{name: "made in secret", work: func(ctx context.Context, cancel func(), _ *db.Tx, id string) error {
				defer cancel()
				add(h, id, user, "PENDING") // as if the lost commit had taken effect
				return nil
			}},
		} {
			if tt.name == "made in secret" && !h.DB.Postgres() {
				continue // SQLite has one writer
			}
			ctx, cancel := context.WithCancel(t.Context())
			table.Line = func(ctx context.Context, tx *db.Tx, _ []string) error { return tt.work(ctx, cancel, tx, tt.name) } // last before the commit
			answer, unused, err := table.Enqueue(ctx, idempotency.Key{}, n(tt.name), func(*db.Tx) error { return nil })
			cancel()
			if unused != tt.unused || !errors.Is(err, tt.err) || (answer == tt.name) != (tt.err == nil) {
				t.Errorf("%s: %q, unused %v, %v", tt.name, answer, unused, err)
			}
		}
	})
}
