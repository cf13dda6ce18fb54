package admin_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"cutroom/internal/domain/admin"
)

func TestUserRowAddsUpJobsAndBalance(t *testing.T) {
	onBoth(t, func(t *testing.T, s *seed) {
		ann, bob := s.user("Ann", "ann@x.test"), s.user("Bob", "")
		s.active(ann, s.now.Add(hour))
		s.exec(`INSERT INTO credit_balances (user_id, balance) VALUES ($1, 12)`, ann)
		s.exec(`UPDATE users SET role = 'admin', provider = 'provider_b' WHERE id = $1`, bob)
		// Three renders and two separations: a join of both tables would count six of each.
		for range 3 {
			s.render(ann, "FAILED", s.now, minute)
		}
		for range 2 {
			s.separation(ann, "READY", s.now, hour)
		}
		s.render(bob, "PENDING", s.now, 0)
		users, total, err := s.reports.Users(t.Context(), "", admin.Page{Limit: 50})
		if err != nil || total != 2 {
			t.Fatal(total, err)
		}
		equal(t, "users", users, []admin.User{
			{UserID: ann, Email: "ann@x.test", Name: "Ann", Provider: "provider_a", Role: "user", Balance: 12, Renders: 3,
				Separations: 2, SourceDurationMs: (3*minute + 2*hour).Milliseconds(), CreatedAt: admin.Time{Time: s.now.UTC()}, LastActivityAt: admin.Time{Time: s.now.Add(hour).UTC()}},
			{UserID: bob, Name: "Bob", Provider: "provider_b", Role: "admin", Renders: 1, CreatedAt: admin.Time{Time: s.now.UTC()}, LastActivityAt: admin.Time{Time: s.now.UTC()}},
		})
	})
}

func TestUsersPages(t *testing.T) {
	onBoth(t, func(t *testing.T, s *seed) {
		var order []string
		for i := range 7 { // 3 and 4 and 5 were active at the same instant
			id := s.user(fmt.Sprint(i), "")
			s.active(id, s.now.Add(-minute*[]time.Duration{0, 1, 2, 3, 3, 3, 4}[i]))
			order = append(order, id)
		}
		slices.Sort(order[3:6])
		s.erasing(s.user("Gone", "gone@x.test"))
		var got []string
		for offset := int64(0); offset < 9; offset += 2 {
			users, total, err := s.reports.Users(t.Context(), "", admin.Page{Limit: 2, Offset: offset})
			if err != nil || total != 7 || users == nil || len(users) > 2 {
				t.Fatalf("page at %d: %d users of %d, %v", offset, len(users), total, err)
			}
			for _, u := range users {
				got = append(got, u.UserID)
			}
		}
		equal(t, "all pages", got, order)
	})
}

func TestUsersSearch(t *testing.T) {
	onBoth(t, func(t *testing.T, s *seed) {
		ids := map[string]string{}
		for name, email := range map[string]string{
			"Ann Percent%": "ann@x.test", "Bob_Under": "BOB@Y.test", `Back\slash`: "back@y.test", "김민수": "kim@z.test", "": "nameless@x.test",
			"École Иван": "ecole@z.example",
		} {
			ids[name] = s.user(name, email)
		}
		s.erasing(s.user("Ann Gone", "gone@x.test"))
		for _, c := range []struct {
			q    string
			want []string
		}{
			{"", []string{"Ann Percent%", "Bob_Under", `Back\slash`, "김민수", "", "École Иван"}},
			{"ANN", []string{"Ann Percent%"}},
			{" n p ", []string{"Ann Percent%"}},
			{"bob@y", []string{"Bob_Under"}},
			{"@X.TEST", []string{"Ann Percent%", ""}},
			{"민", []string{"김민수"}},
			{"ÉCOLE иВАН", []string{"École Иван"}},
			{"%", []string{"Ann Percent%"}},
			{"_", []string{"Bob_Under"}},
			{"a%n", nil},
			{`\`, []string{`Back\slash`}},
			{`\%`, nil},
			{ids["Bob_Under"], []string{"Bob_Under"}},
			{strings.ToUpper(ids["Bob_Under"]), []string{"Bob_Under"}},
			{ids["Bob_Under"][:35], nil},
			{"a\x00n", nil},
			{strings.Repeat("a%", 100_000), nil},
		} {
			users, total, err := s.reports.Users(t.Context(), c.q, admin.Page{Limit: 50})
			if err != nil || users == nil || int(total) != len(users) {
				t.Errorf("%.50q: %d of %d, %v", c.q, len(users), total, err)
				continue
			}
			got, want := []string{}, []string{}
			for _, u := range users {
				got = append(got, u.UserID)
			}
			for _, name := range c.want {
				want = append(want, ids[name])
			}
			slices.Sort(got)
			slices.Sort(want)
			equal(t, fmt.Sprintf("%.50q", c.q), got, want)
		}
	})
}
