package admin_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"cutroom/internal/domain/admin"
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

// The report has a row for every day and usual call, and for other calls of the range. Calls are counted exactly. The
// p95 is the latency of rank ceil(0.95 n), counted from 1, to 5 %.
func TestExternalCalls(t *testing.T) {
	onBoth(t, func(t *testing.T, s *seed) {
		random := rand.New(rand.NewPCG(3, 4))
		endpoints := []string{"upload-token", "upload", "register", "audio-separation", "progress", "project", "download", "other"}
		span := admin.Range{From: day(t, "2026-05-01"), To: day(t, "2026-05-07")}
		s.call("upload", true, 9999, span.From.Start().Add(-ms))
		s.call("upload", true, 9999, span.To.Start())
		var want []admin.Calls
		exact := map[int]int64{} // p95 by row
		for d, calls := range []int{1, 2, 19, 20, 21, 40} {
			for _, endpoint := range endpoints {
				c := admin.Calls{Day: span.From + admin.Day(d), Provider: "separation", Endpoint: endpoint}
				if endpoint == "upload" || endpoint == "other" {
					c.Count = int64(calls)
					var latencies []int64
					for range calls {
						at := []time.Duration{0, 24*hour - ms, time.Duration(random.Int64N(int64(24 * hour)))}[random.IntN(3)]
						latency, ok := int64(1)<<random.IntN(20)+random.Int64N(50), random.IntN(3) > 0
						s.call(endpoint, ok, latency, c.Day.Start().Add(at))
						latencies = append(latencies, latency)
						if !ok {
							c.Failures++
						}
					}
					slices.Sort(latencies)
					exact[len(want)] = latencies[(95*calls+99)/100-1]
					c.FailureRate = float64(c.Failures) / float64(calls)
				}
				want = append(want, c)
			}
		}
		got := must(s.reports.ExternalCalls(t.Context(), span))(t)
		for i, p95 := range exact {
			if off := math.Abs(float64(got[i].P95Ms-p95)) / float64(p95); off > 0.05 {
				t.Errorf("p95 %d ms, want %d ms to 5 %%", got[i].P95Ms, p95)
			}
			want[i].P95Ms = got[i].P95Ms
		}
		equal(t, "calls", got, want)
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
