package job_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"cutroom/internal/job"
	"cutroom/internal/jobtest"
)

func TestSweepFoldersRemovesUnusedFolders(t *testing.T) {
	eachDatabase(t, func(t *testing.T, h *jobtest.Harness) {
		for id, until := range map[string]string{"chore-held": "now_ms() + 60000", "chore-lost": "now_ms() - 1", "chore-done": "NULL"} {
			h.Exec(`INSERT INTO chores (id, lease_owner, lease_until, fence) VALUES ($1, 'me', `+until+`, 7)`, id)
		}
		dir := t.TempDir()
		old := time.Now().Add(-2 * job.OrphanAge)
		for name, aged := range map[string]bool{
			"chore-held-7": true, "chore-held-7-aside": true, // in use
			"chore-held-6": false, "chore-lost-7": false, "chore-done-7-aside": false, // unused
			"chore-other-1": false, "chore-gone-1": true, // no row: a new folder may belong to another replica
			"unrelated-1": true, "chore": true,
		} {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Join(path, "deep"), 0o700); err != nil {
				t.Fatal(err)
			}
			if aged {
				if err := os.Chtimes(path, old, old); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 2 { // the second sweep changes nothing
			if err := chores(h.DB, dir).SweepFolders(t.Context(), "-aside"); err != nil {
				t.Fatal(err)
			}
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			var left []string
			for _, e := range entries {
				left = append(left, e.Name())
			}
			if want := []string{"chore", "chore-held-7", "chore-held-7-aside", "chore-other-1", "unrelated-1"}; !slices.Equal(left, want) {
				t.Errorf("left: %v", left)
			}
		}
	})
}

func TestRevokeRemovesTheFoldersOfAUsersJobs(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, h *jobtest.Harness) {
		dir := t.TempDir()
		for _, name := range []string{"chore-1-1", "chore-1-2-aside", "chore-2-1", "chore-11-1", "unrelated"} {
			if err := os.MkdirAll(filepath.Join(dir, name, "deep"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		h.Exec(`INSERT INTO chores (id, fence, user_id) VALUES ('chore-1', 1, 'u'), ('chore-2', 1, 'u'),
			('chore-3', 1, 'u'), ('chore-11', 1, 'v')`)
		ids, err := chores(h.DB, dir).Revoke(t.Context(), "u", `id <> 'chore-3'`)
		if slices.Sort(ids); err != nil || !slices.Equal(ids, []string{"chore-1", "chore-2", "chore-3"}) {
			t.Fatalf("%v, %v", ids, err)
		}
		left, _ := filepath.Glob(filepath.Join(dir, "*"))
		if want := []string{filepath.Join(dir, "chore-11-1"), filepath.Join(dir, "unrelated")}; !slices.Equal(left, want) {
			t.Errorf("left: %v", left)
		}
	})
}
