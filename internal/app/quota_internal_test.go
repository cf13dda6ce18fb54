package app

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"cutroom/internal/base/db"
	"cutroom/internal/config"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/testkit/jobtest"
	"cutroom/internal/work/quota"
)

// What an account has is read at every submit, and comes from everything that is stored.
func TestUsageOfAnAccount(t *testing.T) {
	dbtest.EachParallel(t, func(t *testing.T, d *db.DB) {
		limits := NewQuota(config.Config{})
		for _, query := range []string{
			`INSERT INTO users (id, provider, provider_sub, created_at, last_active_at) VALUES ('u', 'p', 's', 1, 1), ('v', 'p', 't', 1, 1)`,
			`INSERT INTO assets (asset_key, size_bytes, content_type) VALUES ('assets/a', 1, ''), ('assets/b', 2, '')`,
			`INSERT INTO asset_holders (user_id, asset_key, size_bytes, created_at, last_used_at) VALUES ('u', 'assets/a', 1, 1, 1), ('v', 'assets/a', 1, 1, 1), ('v', 'assets/b', 2, 1, 1)`,
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
		const many = 4900
		dbtest.Exec(t, d, `INSERT INTO users (id, provider, provider_sub, created_at, last_active_at) VALUES ('w', 'p', 'x', 1, 1)`)
		dbtest.Exec(t, d, `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
			INSERT INTO asset_holders (user_id, asset_key, size_bytes, created_at, last_used_at) SELECT 'w', 'assets/' || i, 3, 1, 1 FROM n`, many)
		if d.Postgres() {
			dbtest.Exec(t, d, `VACUUM ANALYZE asset_holders`)
		}
		if got, err := limits.Usage(t.Context(), d, "w"); err != nil || got.StoredBytes != 3*many {
			t.Errorf("many assets: %+v, %v", got, err)
		}
		plan := dbtest.Plan(t, d, `SET LOCAL enable_seqscan = off`, limits.Query, "w")
		for _, step := range plan {
			if strings.Contains(step, "Seq Scan") || strings.HasPrefix(strings.TrimSpace(step), "SCAN ") && !strings.Contains(step, "CONSTANT ROW") {
				t.Errorf("reads a whole table:\n%s", strings.Join(plan, "\n"))
			}
		}
		text := strings.Join(plan, "\n")
		for _, index := range []string{"jobs_waiting_by_user", "jobs_stored", "asset_holders_stored"} {
			if !strings.Contains(text, index) {
				t.Errorf("without the index %s:\n%s", index, text)
			}
		}
		if regexp.MustCompile(`\bassets|Join|Nested`).MatchString(text) {
			t.Errorf("joins every asset:\n%s", text)
		}
	})
}
