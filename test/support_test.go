// The commands of support: credits, orders, exports, sign-out, erasure, and the audit record.

package test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cutroom/internal/sandbox/store"
	"cutroom/internal/testkit/apitest"
)

// command runs a command that must succeed, and reads its output as JSON.
func command(t *testing.T, s *apitest.Server, into any, args ...string) {
	t.Helper()
	out := succeeds(t, s, append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		t.Fatalf("cutroom %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// succeeds runs a command, ends the test unless its status is 0, and returns its output.
func succeeds(t testing.TB, s *apitest.Server, args ...string) string {
	t.Helper()
	status, out := s.Command(t, args...)
	if status != 0 {
		t.Fatalf("cutroom %s: status %d: %s", strings.Join(args, " "), status, out)
	}
	return out
}

// refusedCommand runs a command that must fail with one line that contains all of want.
func refusedCommand(t *testing.T, s *apitest.Server, args []string, want ...string) {
	t.Helper()
	status, out := s.Command(t, args...)
	if status == 0 || strings.Count(strings.TrimSpace(out), "\n") > 0 {
		t.Errorf("cutroom %s: status %d, want a refusal in one line: %s", strings.Join(args, " "), status, out)
	}
	for _, w := range want {
		if !strings.Contains(out, w) {
			t.Errorf("cutroom %s: %q does not contain %q", strings.Join(args, " "), out, w)
		}
	}
}

// auditEntry is an entry of the audit record.
type auditEntry struct {
	Time                  time.Time
	Actor, Action, Target string
	Detail                map[string]any
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
		if i > 0 && entries[i-1].Time.Before(e.Time) {
			t.Errorf("entry %d is older than the one after it", i-1)
		}
	}
	if e := actions["role-granted"]; !strings.HasPrefix(e.Actor, "cli:") || e.Target != admin.Sub {
		t.Errorf("grant of the admin role: %+v", e)
	}
	if e := actions["admin-grant"]; e.Actor != admin.Sub || e.Detail["credits"] != 10.0 {
		t.Errorf("grant of credits: %+v", e)
	}
	erased := actions["account-erased"]
	if erased.Actor != gone.Sub || erased.Target != gone.Sub {
		t.Errorf("deletion: %+v", erased)
	}
	if out := succeeds(t, s, "audit"); strings.Contains(out, "@") || !strings.Contains(out, gone.Sub) {
		t.Errorf("the audit record as a table: %s", out)
	}

	var ids []string
	command(t, s, &ids, "erasures", "--since", erased.Time.Format(time.DateOnly))
	if !strings.Contains(strings.Join(ids, " "), gone.Sub) {
		t.Errorf("%s is not among the erasures %v", gone.Sub, ids)
	}
	command(t, s, &ids, "erasures", "--since", "2999-01-01")
	if len(ids) != 0 {
		t.Errorf("erasures since a time in the future: %v", ids)
	}
	if !strings.Contains(s.Logs(), gone.Sub) {
		t.Error("the log does not contain the id of the deleted account")
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
	if status, out := s.Command(t, "events", "--help"); status != 0 || !strings.HasPrefix(out, "usage: cutroom") {
		t.Errorf("events --help: status %d: %s", status, out)
	}
	// The environment overrides the settings file.
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
	for _, applies := range []bool{true, false} {
		if status, out := run("migrate"); status != 0 || strings.Contains(out, "database migrated") != applies {
			t.Errorf("migrate: status %d: %s", status, out)
		}
	}
	if status, out := run("admin", "list", "--json"); status != 0 || strings.TrimSpace(out) != "[]" {
		t.Errorf("admin list: status %d: %s", status, out)
	}
}

// person is what `cutroom user show` prints.
type person struct {
	UserID, Email, Provider, Role string
	Balance, Owed                 int
	Ledger                        []struct {
		RefID, Kind, JobID, OrderID string
		Credits                     int
	}
	Purchases []struct {
		Platform, OrderID, ProductID string
		Credits                      int
	}
	Refusals        []struct{ Platform, OrderID, ProductID, Reason string }
	AlsoPresentedBy []string
	Jobs            []struct{ JobID, JobType, Status, Error string }
	Audit           []auditEntry
}

func TestSupportCorrectsCredits(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	admin, u, other := s.Admin(t), s.SignIn(t), s.SignIn(t)
	bought := u.Buy(t, "credits.10")
	// The render of a truncated file fails. Support sees the cause, but the owner does not.
	whole, err := os.ReadFile(redClip(t))
	if err != nil {
		t.Fatal(err)
	}
	clear(whole[64:])
	broken := filepath.Join(t.TempDir(), "broken.mp4")
	if err := os.WriteFile(broken, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	job := u.Render(t, M{"videoDurationMs": 500}, apitest.File("video", broken))
	told := u.WaitFinished(t, job)

	var p person
	command(t, s, &p, "user", "show", u.Email)
	if p.UserID != u.Sub || p.Balance != 13 || len(p.Ledger) != 2 || len(p.Purchases) != 1 || p.Purchases[0].OrderID != bought.TransactionID ||
		len(p.Jobs) != 1 || p.Jobs[0].JobID != job {
		t.Errorf("%+v", p)
	}
	var j struct {
		JobID, UserID, Status, Error, ErrorCode, Cause, Replica string
		Attempts                                                int
		Inputs                                                  map[string]any
		Ledger                                                  []struct{ Kind string }
	}
	command(t, s, &j, "job", "show", job)
	if j.UserID != u.Sub || j.Status != "FAILED" || j.Error != told.Error || told.ErrorCode != "source_unreadable" || j.ErrorCode != told.ErrorCode || j.Cause == "" || j.Replica == "" || j.Attempts != 1 || len(j.Inputs) == 0 {
		t.Errorf("%+v", j)
	}
	if body := string(u.Get(t, "/api/v2/render/"+job+"/status").Expect(200).Body); strings.Contains(body, "cause") {
		t.Errorf("the owner sees the cause: %s", body)
	}

	grant := []string{"credits", "grant", u.Sub, "5", "--reason", "the film failed", "--job", job}
	var entry struct {
		RefID   string
		Balance int
	}
	command(t, s, &entry, grant...)
	if entry.Balance != 18 || u.Balance(t) != 18 || !strings.HasPrefix(entry.RefID, "support-") {
		t.Errorf("%+v", entry)
	}
	refusedCommand(t, s, grant, "already", entry.RefID)
	refusedCommand(t, s, []string{"credits", "grant", other.Sub, "5", "--reason", "x", "--job", job}, "does not belong to user")
	refusedCommand(t, s, []string{"credits", "grant", u.Sub, "5", "--reason", "x", "--job", "rnd-nothing"}, "no job")
	refusedCommand(t, s, []string{"credits", "grant", u.Sub, "5"}, "--reason")
	refusedCommand(t, s, []string{"credits", "grant", u.Sub, "5", "--reason", "  "}, "--reason")
	if screen := succeeds(t, s, "user", "show", u.Email); !strings.Contains(screen, `"reason":"the film failed"`) {
		t.Errorf("user show does not show the reason of the entry: %s", screen)
	}
	refusedCommand(t, s, []string{"credits", "grant", u.Sub, "0", "--reason", "x"}, "is not a number")
	refusedCommand(t, s, []string{"credits", "revoke", u.Email, "19", "--reason", "x"}, "balance=18")
	refusedCommand(t, s, []string{"credits", "revoke", "nobody@example.test", "1", "--reason", "x"}, "nobody@example.test")
	refusedCommand(t, s, []string{"user", "show", "nobody@example.test"}, "nobody@example.test")
	refusedCommand(t, s, []string{"job", "show", "rnd-nothing"}, "rnd-nothing")
	command(t, s, &entry, "credits", "revoke", u.Email, "18", "--reason", "mistake")
	if u.Balance(t) != 0 {
		t.Errorf("balance %d after revoking all credits", u.Balance(t))
	}
	command(t, s, &p, "user", "show", u.Sub)
	if len(p.Audit) != 2 || p.Audit[1].Detail["reason"] != "the film failed" || p.Audit[1].Detail["job"] != job || p.Audit[0].Detail["credits"] != -18.0 {
		t.Errorf("audit record %+v", p.Audit)
	}
	command(t, s, &j, "job", "show", job)
	if len(j.Ledger) != 1 || j.Ledger[0].Kind != "support" {
		t.Errorf("ledger of the job: %+v", j.Ledger)
	}
	for _, args := range [][]string{{"user", "show", u.Sub}, {"job", "show", job}} {
		if out := succeeds(t, s, args...); !strings.Contains(out, u.Sub) || !strings.Contains(out, job) {
			t.Errorf("cutroom %v as a table: %s", args, out)
		}
	}

	// The admin app finds the same.
	for _, q := range []string{job, bought.TransactionID} {
		var found adminUsers
		admin.Get(t, adminPath+"users?q="+q).Expect(200).JSON(&found)
		if found.Total != 1 || found.Users[0].UserID != u.Sub {
			t.Errorf("q=%s found %+v", q, found)
		}
	}
	for _, list := range []string{"ledger", "purchases", "jobs"} {
		var body map[string]any
		admin.Get(t, adminPath+"users/"+u.Sub+"/"+list).Expect(200).JSON(&body)
		if body["total"] == 0.0 {
			t.Errorf("no %s", list)
		}
	}
}

// If a user has paid but got no credits, support finds the order, and verifies it with the store or grants the credits.
// The order then grants nothing later.
func TestSupportSettlesAMissingPurchase(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	admin, u, other := s.Admin(t), s.SignIn(t), s.SignIn(t)
	refused := func(sale store.PurchaseA) store.PurchaseA {
		t.Helper()
		sale.ProductID = "credits.50"
		sale = s.World.PurchaseA(sale)
		purchase(t, u, "platform_a", sale.OrderID, sale.Token, "credits.150").Error(400, "receipt_invalid")
		return sale
	}
	sale, tester := refused(store.PurchaseA{}), refused(store.PurchaseA{Set: map[string]any{"purchaseType": 0}})
	purchase(t, other, "platform_a", sale.OrderID, "token-of-nobody", "credits.10").Error(400, "receipt_invalid")

	var p person
	command(t, s, &p, "user", "show", tester.OrderID)
	if p.UserID != u.Sub || len(p.Refusals) != 2 || len(p.AlsoPresentedBy) != 0 || len(p.Purchases) != 0 {
		t.Errorf("%+v", p)
	}
	if r := p.Refusals[0]; r.Platform != "platform_a" || r.OrderID != tester.OrderID || r.ProductID != "credits.150" || r.Reason != "mismatch" {
		t.Errorf("%+v", r)
	}
	export, screen := succeeds(t, s, "user", "export", u.Sub), succeeds(t, s, "user", "show", sale.OrderID)
	if !strings.Contains(screen, u.Sub) || !strings.Contains(screen, other.Sub) || !strings.Contains(export, sale.OrderID) ||
		strings.Contains(screen+export+s.Logs(), sale.Token) {
		t.Errorf("%s\n%s", screen, export)
	}

	verify := func(sale store.PurchaseA, more ...string) []string {
		return append([]string{"purchase", "verify", "platform_a", sale.OrderID, "--user", u.Email}, more...)
	}
	refusedCommand(t, s, verify(sale), "--receipt")
	refusedCommand(t, s, verify(tester, "--receipt", tester.Token), "test_purchase")
	refusedCommand(t, s, []string{"purchase", "verify", "platform_c", "x", "--user", u.Email}, "platform_c:x")
	var got struct {
		UserID           string
		Granted, Balance int
	}
	for _, granted := range []int{50, 0} {
		command(t, s, &got, verify(sale, "--receipt", sale.Token)...)
		if got.UserID != u.Sub || got.Granted != granted || got.Balance != 53 {
			t.Errorf("verified: %+v, want %d granted", got, granted)
		}
	}
	b, _ := s.World.TransactionB(store.TransactionB{ProductID: "credits.10", AccountToken: u.Sub})
	command(t, s, &got, "purchase", "verify", "platform_b", b.TransactionID, "--user", u.Sub)
	if got.Granted != 10 || u.Balance(t) != 63 {
		t.Errorf("verified on platform_b without a receipt: %+v", got)
	}
	command(t, s, &p, "user", "show", sale.OrderID)
	if p.UserID != u.Sub || len(p.AlsoPresentedBy) != 1 || p.AlsoPresentedBy[0] != other.Sub || len(p.Purchases) != 2 {
		t.Errorf("%+v", p)
	}

	grant := []string{"credits", "grant", other.Sub, "9", "--reason", "the store cannot find it", "--order", "platform_a:GPA.by-hand"}
	command(t, s, &struct{}{}, grant...)
	refusedCommand(t, s, grant, "GPA.by-hand", "already paid out")
	refusedCommand(t, s, []string{"credits", "grant", u.Sub, "9", "--reason", "x", "--order", "platform_a:" + sale.OrderID}, "already paid out")
	for _, args := range [][]string{append(grant[:7:7], "GPA.1"), {"credits", "revoke", u.Sub, "1", "--reason", "x", "--order", "platform_a:x"}, {"purchase", "verify", "platform_a", "x"}} {
		if status, out := s.Command(t, args...); status != 2 {
			t.Errorf("cutroom %v: status %d: %s", args, status, out)
		}
	}
	command(t, s, &got, "purchase", "verify", "platform_a", "GPA.by-hand", "--user", other.Sub) // does not ask the store
	if got.Granted != 0 || other.Balance(t) != 12 {
		t.Errorf("verified later: %+v", got)
	}
	late := s.World.PurchaseA(store.PurchaseA{OrderID: "GPA.by-hand", ProductID: "credits.10"})
	var again apitest.Purchased
	purchase(t, u, "platform_a", late.OrderID, late.Token, late.ProductID).Expect(200).JSON(&again)
	if again.Granted != 0 || other.Balance(t) != 12 {
		t.Errorf("presented later: %+v", again)
	}
	var sold revenue
	admin.Get(t, "/api/v2/admin/revenue").Expect(200).JSON(&sold)
	if sold != (revenue{PurchaseCount: 2, CreditsSold: 60, PayingUsers: 1}) {
		t.Errorf("revenue %+v", sold)
	}
	if _, err := s.World.PlatformA.Refund(late.Token); err != nil {
		t.Fatal(err)
	}
	push(t, s, notifyA, s.World.PlatformA.Push(late)).Expect(200)
	if have := other.Balance(t); have != 3 {
		t.Errorf("balance %d after the store refunded what support granted, want 3", have)
	}
	var list struct{ Total int }
	admin.Get(t, adminPath+"users/"+u.Sub+"/refusals").Expect(200).JSON(&list)
	if list.Total != 2 {
		t.Errorf("%d refused receipts in the admin app", list.Total)
	}

	// A deleted account's orders stay known, but not their buyer.
	other.Send(t, apitest.Request{Method: "DELETE", Path: "/api/v2/auth/account", Valid: true}).Expect(204)
	refusedCommand(t, s, []string{"user", "show", "GPA.by-hand"}, "account that is deleted")
	refusedCommand(t, s, []string{"user", "show", "GPA.unheard-of"}, "90 days")
}

func TestSupportExportsSignsOutAndErases(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	u, admin := s.SignIn(t), s.Admin(t)
	film := u.Render(t, M{"videoDurationMs": 500}, apitest.File("video", redClip(t)))
	u.WaitRendered(t, film)

	var data map[string][]map[string]any
	command(t, s, &data, "user", "export", u.Email)
	if data["account"][0]["email"] != u.Email || len(data["ledger"]) != 1 || data["renders"][0]["id"] != film {
		t.Errorf("export: %v", data)
	}

	// Only admins get a token for the admin app.
	refusedCommand(t, s, []string{"admin", "token", u.Email}, "no admin")
	var minted struct{ AccessToken string }
	command(t, s, &minted, "admin", "token", admin.Email)
	staff := *admin
	staff.Token = minted.AccessToken
	staff.Get(t, adminPath+"overview").Expect(200)

	old := *u
	succeeds(t, s, "user", "sign-out", u.Sub)
	for range 3 { // reaches every replica
		old.Send(t, apitest.Request{Path: "/api/v2/credits"}).Error(401, "invalid_token")
	}
	u.SignInAgain(t)
	u.Get(t, "/api/v2/credits").Expect(200)

	if out := succeeds(t, s, "user", "erase", u.Email); !strings.Contains(out, u.Sub) {
		t.Errorf("erase: %s", out)
	}
	u.Get(t, "/api/v2/render/"+film+"/status").Expect(404)
	refusedCommand(t, s, []string{"user", "show", u.Sub}, u.Sub)
	if left := filesOf(t, s, film); len(left) > 0 {
		t.Errorf("files of the deleted account: %v", left)
	}
	var entries []auditEntry
	command(t, s, &entries, "audit", "--since", "2020-01-01")
	actions := map[string]bool{}
	for _, e := range entries {
		if e.Target == u.Sub || e.Target == admin.Sub {
			actions[e.Action] = strings.HasPrefix(e.Actor, "cli:")
		}
	}
	for _, action := range []string{"signed-out", "account-erased", "token-issued"} {
		if !actions[action] {
			t.Errorf("%s is not in the audit record: %v", action, actions)
		}
	}
}
