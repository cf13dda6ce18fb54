package job_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"cutroom/internal/testkit/jobtest"
	"cutroom/internal/work/job"
)

func TestSweepFoldersRemovesUnusedFolders(t *testing.T) {
	eachDatabase(t, func(t *testing.T, h *jobtest.Harness) {
		user := h.User(0)
		for id, until := range map[string]string{"rnd-held": "now_ms() + 60000", "rnd-lost": "now_ms() - 1", "rnd-done": "NULL"} {
			add(h, id, user, "PROCESSING")
			h.Exec(`UPDATE jobs SET fence = 7, lease_until = `+until+` WHERE id = $1`, id)
		}
		dir := t.TempDir()
		old := time.Now().Add(-2 * job.OrphanAge)
		for name, aged := range map[string]bool{
			"rnd-held-7": true, "rnd-held-7-aside": true, // in use
			"rnd-held-6": false, "rnd-lost-7": false, "rnd-done-7-aside": false, // unused
			"rnd-other-1": false, "rnd-gone-1": true, // no row: a new folder may belong to another replica
			"unrelated-1": true, "rnd": true,
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
			if err := renders(h.DB, dir).SweepFolders(t.Context(), "-aside"); err != nil {
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
			if want := []string{"rnd", "rnd-held-7", "rnd-held-7-aside", "rnd-other-1", "unrelated-1"}; !slices.Equal(left, want) {
				t.Errorf("left: %v", left)
			}
		}
	})
}

func TestEraseRemovesAllFilesOfAUsersJobs(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, h *jobtest.Harness) {
		dir := t.TempDir()
		for _, name := range []string{"rnd-1-1", "rnd-1-2-aside", "rnd-2-1", "rnd-11-1", "unrelated"} {
			if err := os.MkdirAll(filepath.Join(dir, name, "deep"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		u, v := h.User(0), h.User(0)
		for id, owner := range map[string]string{"rnd-1": u, "rnd-2": u, "rnd-11": v} {
			add(h, id, owner, "PROCESSING")
		}
		add(h, "rnd-3", u, "COMPLETED")
		for _, key := range []string{"uploads/rnd-1/part", "render/rnd-3/film", "render/rnd-11/film"} {
			h.Put(key)
		}
		table := renders(h.DB, dir)
		table.Store = h.Store
		if err := table.Erase(t.Context(), u); err != nil {
			t.Fatal(err)
		}
		if keys := h.Keys(""); !slices.Equal(keys, []string{"render/rnd-11/film"}) {
			t.Errorf("objects left: %v", keys)
		}
		left, _ := filepath.Glob(filepath.Join(dir, "*"))
		if want := []string{filepath.Join(dir, "rnd-11-1"), filepath.Join(dir, "unrelated")}; !slices.Equal(left, want) {
			t.Errorf("left: %v", left)
		}
	})
}
