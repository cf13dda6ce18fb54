package admin_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"cutroom/internal/base/fault"
	"cutroom/internal/domain/admin"
)

// entry adds a ledger entry.
func (s *seed) entry(user, ref, kind string, credits int64) {
	s.t.Helper()
	s.exec(`INSERT INTO credit_ledger (ref_id, user_id, kind, amount, created_at) VALUES ($1, $2, $3, $4, $5)`,
		ref, user, kind, credits, s.now.UnixMilli()+int64(s.next()))
}

func TestLedgerAndPurchasesOfAUser(t *testing.T) {
	onBoth(t, func(t *testing.T, s *seed) {
		ann, bob := s.user("Ann", ""), s.user("Bob", "")
		s.entry(ann, "signup-"+ann, "signup", 3)
		s.entry(ann, "platform_a-GPA.1-2", "purchase", 10)
		s.entry(ann, "consume-j1", "consume", -2)
		s.entry(ann, "refund-j1", "refund", 2)
		s.entry(ann, "reversal-platform_a-GPA.1-2", "reversal", -7)
		// In the same millisecond, as a refund and the debt that it settles.
		s.exec(`UPDATE credit_ledger SET created_at = $1 WHERE kind IN ('consume', 'refund', 'reversal')`, s.now.UnixMilli()+int64(s.next()))
		s.entry(bob, "signup-"+bob, "signup", 3)
		s.exec(`INSERT INTO purchases (platform, transaction_hash, product_id, credits, buyer_id, order_id, created_at, reversed_at, owed)
			VALUES ('platform_a', 'h', 'credits.10', 10, $1, 'GPA.1-2', $2, $2, 3)`, ann, s.now.UnixMilli())

		entries, total, err := s.reports.Ledger(t.Context(), ann, admin.Page{Limit: 50})
		if err != nil || total != 5 {
			t.Fatal(total, err)
		}
		var got []string
		for _, e := range entries {
			got = append(got, fmt.Sprint(e.Kind, e.Credits, e.JobID, e.OrderID))
		}
		equal(t, "ledger", got, []string{"reversal-7GPA.1-2", "refund2j1", "consume-2j1", "purchase10GPA.1-2", "signup3"})
		if rest, _, err := s.reports.Ledger(t.Context(), ann, admin.Page{Limit: 2, Offset: 4}); err != nil || len(rest) != 1 || rest[0].Kind != "signup" {
			t.Errorf("the last page: %+v, %v", rest, err)
		}
		sold, total, err := s.reports.Purchases(t.Context(), ann, admin.Page{Limit: 50})
		if err != nil || total != 1 {
			t.Fatal(total, err)
		}
		at := admin.Time{Time: s.now.UTC()}
		equal(t, "purchases", sold, []admin.Purchase{{Platform: "platform_a", OrderID: "GPA.1-2", ProductID: "credits.10", Credits: 10,
			Owed: 3, CreatedAt: at, ReversedAt: at}})

		s.erasing(bob)
		for _, unknown := range []string{bob, uuid.NewString()} {
			_, _, ledger := s.reports.Ledger(t.Context(), unknown, admin.Page{Limit: 1})
			_, _, purchases := s.reports.Purchases(t.Context(), unknown, admin.Page{Limit: 1})
			_, export := s.reports.Export(t.Context(), unknown)
			for _, err := range []error{ledger, purchases, export} {
				if !errors.Is(err, fault.Sentencef(fault.NotFound, "User not found")) {
					t.Errorf("unknown user: %v", err)
				}
			}
		}
	})
}

func TestUsersAreFoundByJobAndOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, s *seed) {
		ann, bob := s.user("Ann", ""), s.user("Bob", "")
		film, stems := s.render(ann, "FAILED", s.now, minute), s.separation(bob, "READY", s.now, minute)
		s.exec(`INSERT INTO purchases (platform, transaction_hash, product_id, credits, buyer_id, order_id, created_at)
			VALUES ('platform_a', 'h', 'credits.10', 10, $1, 'GPA.1-2', 1)`, bob)
		for search, want := range map[string]string{film: ann, strings.ToUpper(stems): bob, " GPA.1-2 ": bob,
			"GPA.1": "", "gpa.1-2": "", film[:5]: ""} {
			users, total, err := s.reports.Users(t.Context(), search, admin.Page{Limit: 50})
			switch {
			case err != nil:
				t.Fatal(err)
			case want == "" && total != 0, want != "" && (total != 1 || users[0].UserID != want):
				t.Errorf("%q found %+v, want %q", search, users, want)
			}
		}
	})
}

func TestJobTellsSupportEverything(t *testing.T) {
	onBoth(t, func(t *testing.T, s *seed) {
		ann := s.user("Ann", "ann@x.test")
		film, stems := s.render(ann, "FAILED", s.now, minute), s.separation(ann, "FAILED", s.now, 2*minute)
		s.exec(`UPDATE jobs SET error = 'An internal error', failure_cause = 'exit status 1', replica = 'host/1', attempts = 2 WHERE id = $1`, film)
		s.exec(`UPDATE renders SET spec = '{"sources":{"v":1}}' WHERE job_id = $1`, film)
		s.exec(`UPDATE jobs SET failure_cause = 'HTTP 500', error_code = 'provider_unavailable' WHERE id = $1`, stems)
		s.exec(`UPDATE separations SET source_name = 'song.mp3' WHERE job_id = $1`, stems)
		s.entry(ann, "consume-"+stems, "consume", -1)
		s.entry(ann, "refund-"+stems, "refund", 1)
		s.entry(ann, "support-x", "support", 5)
		s.entry(ann, "support-y", "support", 5)

		j := must(s.reports.Job(t.Context(), film, "support-none"))(t)
		if j.JobType != "render" || j.UserID != ann || j.Email != "ann@x.test" || j.Cause != "exit status 1" || j.Replica != "host/1" ||
			j.Attempts != 2 || string(j.Inputs) != `{"sources":{"v":1}}` || !j.FinishedAt.Equal(s.now) || len(j.Ledger) != 0 {
			t.Errorf("%+v", j)
		}
		j = must(s.reports.Job(t.Context(), stems, "support-x"))(t)
		if j.JobType != "separation" || j.Cause != "HTTP 500" || j.ErrorCode != "provider_unavailable" || !strings.Contains(string(j.Inputs), `"fileName":"song.mp3"`) || len(j.Ledger) != 3 {
			t.Errorf("%+v", j)
		}
		if _, err := json.Marshal(j); err != nil {
			t.Error(err)
		}
		if _, err := s.reports.Job(t.Context(), "nothing", ""); !errors.Is(err, fault.Sentencef(fault.NotFound, "Job not found")) {
			t.Errorf("unknown job: %v", err)
		}
		data := must(s.reports.Export(t.Context(), ann))(t)
		text, err := json.Marshal(data)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`"email":"ann@x.test"`, `"sourceName":"song.mp3"`, `"refId":"refund-` + stems, `"sources":{"v":1}`, `"createdAt":"20`} {
			if !strings.Contains(string(text), want) {
				t.Errorf("the export lacks %s: %s", want, text)
			}
		}
		for _, internal := range []string{"exit status 1", "host/1"} {
			if strings.Contains(string(text), internal) {
				t.Errorf("the export holds %q", internal)
			}
		}
	})
}
