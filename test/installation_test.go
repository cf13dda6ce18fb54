package test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"cutroom/internal/testkit/apitest"
)

// A configuration mistake must not empty a bucket. The service refuses the bucket of another database, and stops a
// sweep if most objects are unknown.
func TestABucketSurvivesTheWrongDatabase(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Bucket(true), apitest.Replicas(1), apitest.Env("OPS_ADDR", "127.0.0.1:"+freePort(t)))
	if keys := s.ObjectKeys(t); !slices.Contains(keys, "cutroom-installation") {
		t.Fatalf("a service on an empty bucket left %v", keys)
	}
	var keys []string
	for i := range 100 {
		for _, folder := range []string{"render/rnd-%d/out.mp4", "separation/sep-%d/voice_all.flac", "uploads/sep-%d/source", "uploads/rnd-%d/video", "inputs/user-%d/x"} {
			keys = append(keys, fmt.Sprintf(folder, i))
		}
	}
	s.PutObjects(t, keys...)
	s.Stop(t)
	count := func() (n int) {
		t.Helper()
		for _, key := range s.ObjectKeys(t) {
			if strings.Contains(key, "/") && !strings.HasPrefix(key, "ready/") {
				n++
			}
		}
		return n
	}
	command := func(status int, holds string, args ...string) string {
		t.Helper()
		got, out := s.Command(t, args...)
		if got != status || !strings.Contains(out, holds) {
			t.Errorf("%v: status %d, want %d and %q:\n%s", args, got, status, holds, out)
		}
		if n := count(); n != len(keys) && status != 0 {
			t.Fatalf("%d of %d objects left after %v", n, len(keys), args)
		}
		return out
	}
	right := map[string]string{"DATABASE_URL": s.Config("DATABASE_URL"), "DB_USER": s.Config("DB_USER"), "DB_PASSWORD": s.Config("DB_PASSWORD")}
	s.SetEnv("DATABASE_URL", "sqlite://"+filepath.Join(t.TempDir(), "other.db"))
	command(1, "belongs to another installation", "serve")
	command(1, "belongs to another installation", "doctor")
	command(1, "run `cutroom adopt-bucket`", "sweep", "--confirm")

	// The operator adopts the bucket, although the database has no rows for its objects.
	command(0, "now belongs to this database", "adopt-bucket")
	command(0, "already belongs to this database", "adopt-bucket")
	command(0, "of this database", "doctor")
	if s.World.Bucket != nil {
		if err := s.World.Bucket.Age(30 * 24 * time.Hour); err != nil {
			t.Fatal(err)
		}
		s.Restart(t)
		apitest.Eventually(t, maxWait, func() bool {
			_, text := s.Ops("/metrics")
			return strings.Contains(text, "\ncutroom_sweep_held_objects 500\n")
		}, s.Logs)
		if log := s.Logs(); !strings.Contains(log, "cutroom sweep --confirm") || !strings.Contains(log, `"level":"ERROR"`) {
			t.Errorf("nothing was logged:\n%s", log)
		}
		s.Stop(t)
		if out := command(1, "nothing was removed", "sweep"); !regexp.MustCompile(`stems +100 +0 +100 `).MatchString(out) {
			t.Error(out)
		}
		command(0, `"kind":"stems","objects":100`, "sweep", "--confirm")
		if n := count(); n != 0 {
			t.Errorf("%d objects left by a confirmed sweep", n)
		}
	}

	// The bucket no longer belongs to the first database.
	for key, value := range right {
		s.SetEnv(key, value)
	}
	status, out := s.Command(t, "serve")
	if status != 1 || !strings.Contains(out, "belongs to another installation") {
		t.Errorf("serve on a bucket that another database adopted: %d\n%s", status, out)
	}
	command(0, "now belongs to this database", "adopt-bucket")
	s.Restart(t)
}

// Without a bucket the files are on one disk. On another disk, serve exits and names both, until an operator adopts the
// new one.
func TestAnotherDiskIsRefused(t *testing.T) {
	t.Parallel()
	sameInEveryShape(t)
	s := apitest.Start(t, apitest.Bucket(false), apitest.Replicas(1))
	s.Stop(t)
	first, other := s.Config("STORAGE_PATH"), t.TempDir()
	id := func(dir string) string {
		b, err := os.ReadFile(filepath.Join(dir, "disk-id"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	s.SetEnv("STORAGE_PATH", other)
	status, out := s.Command(t, "serve")
	if status != 1 || !strings.Contains(out, id(first)) || !strings.Contains(out, id(other)) || !strings.Contains(out, "cutroom adopt-disk") {
		t.Errorf("serve on another disk: %d, want 1, the ids %s and %s, and what to do:\n%s", status, id(first), id(other), out)
	}
	if status, out := s.Command(t, "sweep", "--confirm"); status != 1 || !strings.Contains(out, "cutroom adopt-disk") {
		t.Errorf("a sweep of another disk: %d\n%s", status, out)
	}
	for _, before := range []string{id(first), id(other)} {
		if out := succeeds(t, s, "adopt-disk"); !strings.Contains(out, "now on disk "+id(other)) || !strings.Contains(out, "(before: "+before+")") {
			t.Errorf("adopt-disk, the database had %s and gets %s: %s", before, id(other), out)
		}
	}
	var entries []auditEntry
	command(t, s, &entries, "audit")
	adopted := slices.DeleteFunc(entries, func(e auditEntry) bool { return e.Action != "disk-adopted" })
	if len(adopted) != 1 || adopted[0].Detail["disk"] != id(other) || adopted[0].Detail["before"] != id(first) {
		t.Errorf("audit record: %+v", adopted)
	}
	s.SetEnv("STORAGE_PATH", first)
	if status, out := s.Command(t, "serve"); status != 1 || !strings.Contains(out, "cutroom adopt-disk") {
		t.Errorf("serve on the disk before: %d\n%s", status, out)
	}
	s.SetEnv("STORAGE_PATH", other)
	s.Restart(t)
}
