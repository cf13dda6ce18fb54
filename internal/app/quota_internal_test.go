package app

import (
	"fmt"
	"strings"
	"testing"

	"cutroom/internal/config"
	"cutroom/internal/db"
	"cutroom/internal/dbtest"
	"cutroom/internal/jobtest"
	"cutroom/internal/quota"
)

// What an account has is read at every submit, and comes from everything that is stored.
func TestUsageOfAnAccount(t *testing.T) {
	dbtest.EachParallel(t, func(t *testing.T, d *db.DB) {
		limits := NewQuota(config.Config{})
		for _, query := range []string{
			`INSERT INTO users (id, provider, provider_sub, created_at, last_active_at) VALUES ('u', 'p', 's', 1, 1), ('v', 'p', 't', 1, 1)`,
			`INSERT INTO assets (asset_key, size_bytes, content_type) VALUES ('assets/a', 1, ''), ('assets/b', 2, '')`,
			`INSERT INTO asset_holders (user_id, asset_key, created_at, last_used_at) VALUES ('u', 'assets/a', 1, 1), ('v', 'assets/a', 1, 1), ('v', 'assets/b', 1, 1)`,
			`INSERT INTO render_inputs (user_id, input_id, sha256, object_key, size_bytes, last_used_at) VALUES ('u', 'i', '', 'k', 1000, 1)`,
		} {
			dbtest.Exec(t, d, query)
		}
		for i, state := range []string{"PENDING", "PROCESSING", "COMPLETED", "FAILED", "QUEUED", "SUBMITTING", "READY"} {
			id := map[bool]string{true: "rnd-", false: "sep-"}[i < 4] + fmt.Sprint(i)
			jobtest.Insert(t, d, id, "u", state, 1, 1)
			dbtest.Exec(t, d, `UPDATE jobs SET stored_bytes = $1 WHERE id = $2`, 4<<i, id)
		}
		for user, want := range map[string]quota.Usage{"u": {WaitingJobs: 2, StoredBytes: 1 + 1000 + 4*127},
			"v": {StoredBytes: 3}, "nobody": {}} {
			if got, err := limits.Usage(t.Context(), d, user); err != nil || got != want {
				t.Errorf("%s has %+v, %v, want %+v", user, got, err, want)
			}
		}
		plan := dbtest.Plan(t, d, `SET LOCAL enable_seqscan = off`, limits.Query, "u")
		for _, step := range plan {
			if strings.Contains(step, "Seq Scan") || strings.HasPrefix(strings.TrimSpace(step), "SCAN ") && !strings.Contains(step, "CONSTANT ROW") {
				t.Errorf("reads a whole table:\n%s", strings.Join(plan, "\n"))
			}
		}
		if text := strings.Join(plan, "\n"); !strings.Contains(text, "jobs_waiting_by_user") || !strings.Contains(text, "jobs_stored") {
			t.Errorf("without the partial indexes:\n%s", text)
		}
	})
}
