package app

import (
	"strings"
	"testing"

	"cutroom/internal/config"
	"cutroom/internal/db"
	"cutroom/internal/dbtest"
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
			`INSERT INTO render_jobs (id, user_id, state, spec, output_kind, created_at, upload_bytes, output_key, output_size_bytes) VALUES
				('1', 'u', 'PENDING', '', 'video', 1, 4, NULL, NULL), ('2', 'u', 'PROCESSING', '', 'video', 1, 8, NULL, NULL),
				('3', 'u', 'COMPLETED', '', 'video', 1, 1000000, 'k', 16), ('4', 'u', 'COMPLETED', '', 'video', 1, 1000000, NULL, 1000000)`,
			`INSERT INTO render_inputs (user_id, input_id, sha256, object_key, size_bytes, last_used_at) VALUES ('u', 'i', '', 'k', 32, 1)`,
			`INSERT INTO separation_jobs (id, user_id, state, source_key, source_name, source_size_bytes, source_duration_ms, language, credits, created_at) VALUES
				('5', 'u', 'QUEUED', '', '', 64, 1, '', 1, 1), ('6', 'u', 'PROCESSING', '', '', 128, 1, '', 1, 1),
				('7', 'u', 'READY', '', '', 1000000, 1, '', 1, 1), ('8', 'u', 'FAILED', '', '', 1000000, 1, '', 1, 1)`,
			`INSERT INTO separation_stems (job_id, stem_id, ordinal, object_key, content_type, size_bytes, duration_ms, sha256) VALUES
				('7', 'voice_all', 0, 'k', '', 256, 1, ''), ('7', 'background', 1, 'k', '', 512, 1, '')`,
		} {
			dbtest.Exec(t, d, query)
		}
		for user, want := range map[string]quota.Usage{"u": {WaitingJobs: 2, StoredBytes: 1 + 4 + 8 + 16 + 32 + 64 + 128 + 256 + 512},
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
		if text := strings.Join(plan, "\n"); !strings.Contains(text, "separation_kept_by_user") || !strings.Contains(text, "render_outputs_by_user") {
			t.Errorf("without the partial indexes:\n%s", text)
		}
	})
}
