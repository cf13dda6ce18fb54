package admin_test

import (
	"fmt"
	"testing"
	"time"

	"cutroom/internal/admin"
)

const hour, minute, ms = time.Hour, time.Minute, time.Millisecond

// The other numbers are tested with the totals.
func TestOverviewCountsUsers(t *testing.T) {
	onBoth(t, func(t *testing.T, s *seed) {
		equal(t, "nothing yet", must(s.reports.Overview(t.Context()))(t), admin.Overview{})

		ann, bob, gone := s.user("Ann", "ann@x.test"), s.user("Bob", "bob@x.test"), s.user("Gone", "gone@x.test")
		s.active(ann, s.now.Add(-7*24*hour+minute))
		s.active(bob, s.now.Add(-7*24*hour-minute))
		s.erasing(gone)
		equal(t, "overview", must(s.reports.Overview(t.Context()))(t), admin.Overview{Users: 2, ActiveUsers: 1})
	})
}

func TestSignups(t *testing.T) {
	onBoth(t, func(t *testing.T, s *seed) {
		span := admin.Range{From: day(t, "2024-02-28"), To: day(t, "2024-03-01")}
		for i, at := range []time.Time{
			span.From.Start().Add(-ms), span.From.Start(),
			span.To.Start().Add(-ms), span.To.Start().Add(-hour), span.To.Start().Add(-2 * hour), span.To.Start(),
		} {
			id := s.user(fmt.Sprint(i), "")
			s.exec(`UPDATE users SET created_at = $2 WHERE id = $1`, id, at.UnixMilli())
			switch i {
			case 2:
				s.exec(`UPDATE users SET provider = 'provider_b' WHERE id = $1`, id)
			case 3:
				s.erasing(id)
			}
		}
		equal(t, "signups", must(s.reports.Signups(t.Context(), span))(t), []admin.Signups{
			{Day: span.From, ProviderA: 1}, {Day: span.From + 1, ProviderA: 1, ProviderB: 1},
		})
	})
}

func TestExternalCalls(t *testing.T) {
	onBoth(t, func(t *testing.T, s *seed) {
		span := admin.Range{From: day(t, "2026-05-01"), To: day(t, "2026-05-03")}
		// rows returns rows for every day and usual call, with the given calls filled in.
		rows := func(called ...admin.Calls) (out []admin.Calls) {
			for d := span.From; d < span.To; d++ {
				for _, name := range []string{"upload-token", "upload", "register", "audio-separation", "progress", "project", "download", "other"} {
					row, known := admin.Calls{Day: d, Provider: "separation", Endpoint: name}, name != "other"
					for _, c := range called {
						if c.Endpoint == name {
							known = true
							if c.Day == d {
								row = c
							}
						}
					}
					if known {
						out = append(out, row)
					}
				}
			}
			return out
		}
		equal(t, "without calls", must(s.reports.ExternalCalls(t.Context(), span))(t), rows())
		noon := span.From.Start().Add(12 * hour)
		s.call("upload", true, 9999, span.From.Start().Add(-ms))
		s.call("upload", true, 9999, span.To.Start())
		for i := range 21 { // shuffled 10, 20, … 210; ceil(0.95 × 21) = 20
			s.call("progress", i%7 != 0, int64(10*((i*8)%21+1)), noon)
		}
		s.call("progress", false, 70, span.To.Start().Add(-ms))
		s.call("download", true, 5, span.From.Start())
		s.call("other", true, 6, span.From.Start())
		equal(t, "calls", must(s.reports.ExternalCalls(t.Context(), span))(t), rows(
			admin.Calls{Day: span.From, Provider: "separation", Endpoint: "download", Count: 1, P95Ms: 5},
			admin.Calls{Day: span.From, Provider: "separation", Endpoint: "other", Count: 1, P95Ms: 6},
			admin.Calls{Day: span.From, Provider: "separation", Endpoint: "progress", Count: 21, Failures: 3, FailureRate: 3.0 / 21, P95Ms: 195},
			admin.Calls{Day: span.From + 1, Provider: "separation", Endpoint: "progress", Count: 1, Failures: 1, FailureRate: 1, P95Ms: 72},
		))
	})
}

// The nearest rank of n values is ceil(0.95 n), counted from 1.
func TestP95IsNearestRank(t *testing.T) {
	onBoth(t, func(t *testing.T, s *seed) {
		ranks := map[int]int64{1: 1, 2: 2, 19: 19, 20: 19, 21: 20, 40: 38, 41: 39}
		for n := range ranks {
			for i := n; i >= 1; i-- {
				s.call(fmt.Sprintf("of-%d", n), true, int64(i), s.now)
			}
		}
		today := admin.DayOf(s.now)
		got := map[int]int64{}
		for _, c := range must(s.reports.ExternalCalls(t.Context(), admin.Range{From: today, To: today + 1}))(t) {
			var n int
			if _, err := fmt.Sscanf(c.Endpoint, "of-%d", &n); err == nil {
				got[n] = c.P95Ms
			}
		}
		equal(t, "p95 by number of calls", got, ranks)
	})
}

func TestRevenue(t *testing.T) {
	onBoth(t, func(t *testing.T, s *seed) {
		equal(t, "nothing yet", must(s.reports.Revenue(t.Context()))(t), admin.Revenue{})
		ann, bob := s.user("Ann", ""), s.user("Bob", "")
		s.purchase(ann, "platform_a", 10, s.now)
		s.purchase(ann, "platform_b", 50, s.now.Add(-30*24*hour+minute))
		s.purchase("", "platform_b", 150, s.now.Add(-30*24*hour-minute))
		s.ledger(ann, "purchase", 10)
		s.ledger(ann, "admin", 10)
		s.ledger(bob, "admin", 50)
		s.ledger(bob, "consume", -3)
		want := admin.Revenue{PayingUsers: 1, PurchaseCount: 3, CreditsSold: 210,
			PurchaseCount30d: 2, CreditsSold30d: 60, PlatformAPurchaseCount: 1, PlatformACredits: 10,
			PlatformBPurchaseCount: 2, PlatformBCredits: 200, AdminGranted: 60}
		equal(t, "revenue", must(s.reports.Revenue(t.Context()))(t), want)

		s.exec(`DELETE FROM users WHERE id = $1`, ann)
		want.PayingUsers, want.AdminGranted = 0, 50
		equal(t, "revenue after the buyer left", must(s.reports.Revenue(t.Context()))(t), want)
	})
}

func TestDailyRevenue(t *testing.T) {
	onBoth(t, func(t *testing.T, s *seed) {
		span := admin.Range{From: day(t, "2026-12-31"), To: day(t, "2027-01-02")}
		ann := s.user("Ann", "")
		s.purchase(ann, "platform_a", 1, span.From.Start().Add(-ms))
		s.purchase(ann, "platform_a", 10, span.From.Start())
		s.purchase("", "platform_a", 10, span.From.Start().Add(hour))
		s.purchase(ann, "platform_b", 150, span.From.Start().Add(24*hour-ms))
		s.purchase(ann, "platform_b", 1, span.To.Start())
		equal(t, "daily revenue", must(s.reports.DailyRevenue(t.Context(), span))(t), []admin.DailyRevenue{
			{Day: span.From, PlatformACredits: 20, PlatformBCredits: 150, Purchases: 3}, {Day: span.From + 1},
		})
	})
}
