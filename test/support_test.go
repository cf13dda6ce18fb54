package test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cutroom/internal/apitest"
)

// command runs a command that must succeed, and reads what it prints as JSON.
func command(t *testing.T, s *apitest.Server, into any, args ...string) {
	t.Helper()
	status, out := s.Command(t, append(args, "--json")...)
	if status != 0 {
		t.Fatalf("cutroom %s: status %d: %s", strings.Join(args, " "), status, out)
	}
	if err := json.Unmarshal([]byte(out), into); err != nil {
		t.Fatalf("cutroom %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// refusedCommand runs a command that must fail with a sentence that holds all
// of want.
func refusedCommand(t *testing.T, s *apitest.Server, args []string, want ...string) {
	t.Helper()
	status, out := s.Command(t, args...)
	if status == 0 || strings.Count(strings.TrimSpace(out), "\n") > 0 {
		t.Errorf("cutroom %s: status %d, want a refusal in one line: %s", strings.Join(args, " "), status, out)
	}
	for _, w := range want {
		if !strings.Contains(out, w) {
			t.Errorf("cutroom %s: %q does not say %q", strings.Join(args, " "), out, w)
		}
	}
}

// auditEntry is an entry of the audit record.
type auditEntry struct {
	Time, Actor, Action, Target string
	Detail                      map[string]any
}

func TestTheAuditRecordTellsWhoDidWhat(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	admin, gone := s.Admin(t), s.SignIn(t)
	admin.Post(t, grantPath, M{"productId": "credits.10"}).Expect(200)
	gone.Send(t, apitest.Request{Method: "DELETE", Path: "/api/v2/auth/account", Valid: true}).Expect(204)

	var entries []auditEntry
	command(t, s, &entries, "audit", "--since", "2020-01-01")
	actions := map[string]auditEntry{}
	for i, e := range entries {
		if e.Target == admin.Sub || e.Target == gone.Sub {
			actions[e.Action] = e
		}
		if i > 0 && entries[i-1].Time < e.Time {
			t.Errorf("entry %d is older than the one after it", i-1)
		}
	}
	if e := actions["role-granted"]; !strings.HasPrefix(e.Actor, "cli:") || e.Target != admin.Sub {
		t.Errorf("grant of the role: %+v", e)
	}
	if e := actions["admin-grant"]; e.Actor != admin.Sub || e.Detail["credits"] != 10.0 {
		t.Errorf("grant of credits: %+v", e)
	}
	if e := actions["account-erased"]; e.Actor != gone.Sub || e.Target != gone.Sub {
		t.Errorf("deletion: %+v", e)
	}
	if _, out := s.Command(t, "audit"); strings.Contains(out, "@") || !strings.Contains(out, gone.Sub) {
		t.Errorf("the record as a table: %s", out)
	}

	var ids []string
	command(t, s, &ids, "erasures", "--since", entries[0].Time[:10])
	if !strings.Contains(strings.Join(ids, " "), gone.Sub) {
		t.Errorf("%s is not among the erasures %v", gone.Sub, ids)
	}
	command(t, s, &ids, "erasures", "--since", "2999-01-01")
	if len(ids) != 0 {
		t.Errorf("erasures of the future: %v", ids)
	}
	if !strings.Contains(s.Logs(), gone.Sub) {
		t.Error("the log does not name the deleted account")
	}
}

func TestCommandsNeitherMigrateNorGuess(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	refusedCommand(t, s, []string{"admin", "grant", "nobody@example.test"}, "nobody@example.test", "first sign-in")
	for _, args := range [][]string{{"admin"}, {"admin", "list", "x"}, {"audit", "--since", "yesterday"}, {"erasures"}, {"nonsense"}, {"audit", "--nonsense"}} {
		if status, out := s.Command(t, args...); status != 2 || !strings.Contains(out, "usage: cutroom") {
			t.Errorf("cutroom %v: status %d: %s", args, status, out)
		}
	}
	// A file of settings lies beneath the environment.
	dir := t.TempDir()
	file := filepath.Join(dir, "env")
	var text strings.Builder
	for key, value := range validEnv(t) {
		text.WriteString(key + "=" + value + "\n")
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (int, string) {
		t.Helper()
		status, out, err := apitest.Run(t.Context(), dir, nil, append(args, "--env-file", file)...)
		if err != nil {
			t.Fatal(err)
		}
		return status, out
	}
	if status, out := run("admin", "list"); status != 1 || !strings.Contains(out, "cutroom migrate") {
		t.Errorf("a database without tables: status %d: %s", status, out)
	}
	if status, out := run("migrate"); status != 0 {
		t.Errorf("migrate: status %d: %s", status, out)
	}
	if status, out := run("admin", "list", "--json"); status != 0 || strings.TrimSpace(out) != "[]" {
		t.Errorf("admin list: status %d: %s", status, out)
	}
}
