package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"cutroom/internal/testkit/apitest"
)

// The commands in docs/operations.md restore the backup, even if the previous database crashed and left its write-ahead
// log. The test skips commands that need systemd.
func TestSQLiteIsRestoredAsTheDocumentsSay(t *testing.T) {
	t.Parallel()
	if apitest.Postgres() {
		t.Skip("the commands are for SQLite")
	}
	page, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	s := apitest.Start(t)
	backups := t.TempDir()
	run := func(block string) {
		t.Helper()
		var lines []string
		for line := range strings.Lines(block) {
			if !strings.HasPrefix(line, "systemctl ") && !strings.HasPrefix(line, "chown ") {
				lines = append(lines, line)
			}
		}
		script := strings.NewReplacer("/var/lib/cutroom", s.Dir, "/var/backups", backups).Replace(strings.Join(lines, ""))
		if out, err := exec.CommandContext(t.Context(), "sh", "-ec", script).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
	}
	blocks := regexp.MustCompile("(?s)\n```sh\n((?:sqlite3|systemctl stop cutroom\nrm) .*?)\n```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 2 {
		t.Fatalf("docs/operations.md has %d blocks on SQLite, want backup and restore", len(blocks))
	}
	before := s.SignIn(t, apitest.Credits(10))
	want := before.Balance(t)
	run(blocks[0][1])
	after := s.SignIn(t)
	s.Kill9(t)
	if log, err := os.Stat(filepath.Join(s.Dir, "cutroom.db-wal")); err != nil || log.Size() == 0 {
		t.Fatalf("the crash left no log: %v", err)
	}
	run(blocks[1][1])
	s.Restart(t)
	if n := before.Balance(t); n != want {
		t.Errorf("balance %d of a user in the backup, want %d", n, want)
	}
	refusedCommand(t, s, []string{"user", "show", after.Sub}, after.Sub)
}
