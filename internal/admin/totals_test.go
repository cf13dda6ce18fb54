package admin_test

import (
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"cutroom/internal/admin"
)

// raw computes the reports on jobs from the job rows themselves.
func (s *seed) raw(span admin.Range) string {
	s.t.Helper()
	var o admin.Overview
	daily := make([]admin.Daily, span.Days())
	for i := range daily {
		daily[i].Day = span.From + admin.Day(i)
	}
	histogram := [5]admin.Bucket{{Bucket: "0-1m"}, {Bucket: "1-5m"}, {Bucket: "5-15m"}, {Bucket: "15-60m"}, {Bucket: "60m+"}}
	breakdown := [2]admin.Breakdown{{JobType: "render"}, {JobType: "separation"}}
	rows, err := s.db.Query(s.t.Context(), `SELECT 0, state, created_at, source_duration_ms FROM render_jobs
		UNION ALL SELECT 1, state, created_at, source_duration_ms FROM separation_jobs`)
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var kind int
		var state string
		var at, ms int64
		if err := rows.Scan(&kind, &state, &at, &ms); err != nil {
			s.t.Fatal(err)
		}
		o.Jobs++
		o.SourceDurationMs += ms
		if day := int(admin.DayOf(time.UnixMilli(at)) - span.From); day >= 0 && day < span.Days() {
			daily[day].SourceDurationMs += ms
			*[]*int64{&daily[day].Renders, &daily[day].Separations}[kind]++
		}
		*[]*int64{&o.Renders, &o.Separations}[kind]++
		bucket, _ := slices.BinarySearch([]int64{60_000, 300_000, 900_000, 3_600_000}, ms+1)
		histogram[bucket].Count++
		b := &breakdown[kind]
		b.Total++
		switch state {
		case "COMPLETED", "READY", "DISPOSED":
			b.Succeeded++
		case "FAILED":
			b.Failed++
		default:
			b.InProgress++
		}
	}
	return fmt.Sprintf("%+v %+v %+v %+v", o, daily, histogram, breakdown)
}

// The totals match the rows, whatever happens to jobs and whenever changes are added up.
func TestTotalsAreThoseOfTheRows(t *testing.T) {
	onBoth(t, func(t *testing.T, s *seed) {
		random := rand.New(rand.NewPCG(1, 2))
		pick := func(of ...string) string { return of[random.IntN(len(of))] }
		today := admin.DayOf(s.now)
		span := admin.Range{From: today - 3, To: today + 1}
		lengths := []time.Duration{0, minute - ms, minute, 5*minute - ms, 5 * minute, 15 * minute, hour - ms, hour, 30 * hour}
		states := map[string][]string{"render_jobs": {"PENDING", "PROCESSING", "COMPLETED", "FAILED"},
			"separation_jobs": {"QUEUED", "SUBMITTING", "PROCESSING", "READY", "DISPOSED", "FAILED"}}
		for step := range 150 {
			table := pick("render_jobs", "separation_jobs")
			somebody := fmt.Sprintf(`(SELECT id FROM users ORDER BY id LIMIT 1 OFFSET %d)`, random.IntN(3))
			some := fmt.Sprintf(`id IN (SELECT id FROM %s ORDER BY id LIMIT %d OFFSET %d)`, table, 1+random.IntN(4), random.IntN(20))
			switch random.IntN(10) {
			case 0:
				s.user("", "")
			case 1, 2, 3, 4:
				at := span.From.Start().Add(time.Duration(random.Int64N(int64(4*24*hour)))).UnixMilli() - 24*hour.Milliseconds()
				if random.IntN(2) == 0 { // around midnight UTC
					at = span.From.Start().Add(time.Duration(random.IntN(5))*24*hour).UnixMilli() - random.Int64N(2)
				}
				user := s.user("", "")
				add := s.render
				if table == "separation_jobs" {
					add = s.separation
				}
				for range 1 + random.IntN(3) {
					add(user, pick(states[table]...), time.UnixMilli(at), lengths[random.IntN(len(lengths))])
				}
			case 5, 6: // possibly to its current state, or back from its end
				s.exec(`UPDATE `+table+` SET state = $1 WHERE `+some, pick(states[table]...))
			case 7:
				s.exec(`DELETE FROM ` + table + ` WHERE ` + some)
			case 8: // with the cascade
				s.exec(`DELETE FROM users WHERE id = ` + somebody)
			case 9:
				// Several replicas add up at once.
				var all sync.WaitGroup
				for range 3 {
					all.Go(func() {
						if err := admin.AddUpJobs(t.Context(), s.db); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
			}
			o := must(s.reports.Overview(t.Context()))(t)
			o.Users, o.ActiveUsers = 0, 0
			got := fmt.Sprintf("%+v %+v %+v %+v", o, must(s.reports.Daily(t.Context(), span))(t),
				must(s.reports.DurationHistogram(t.Context()))(t), must(s.reports.StatusBreakdown(t.Context()))(t))
			if want := s.raw(span); got != want {
				t.Fatalf("after step %d:\n got %s\nwant %s", step, got, want)
			}
		}
		if n := s.number(`SELECT COUNT(*) FROM job_changes`); n > 100 {
			t.Errorf("%d changes are left", n)
		}
		s.exec(`DELETE FROM users`)
		if err := admin.AddUpJobs(t.Context(), s.db); err != nil {
			t.Fatal(err)
		}
		if n := s.number(`SELECT (SELECT COUNT(*) FROM job_days) + (SELECT COUNT(*) FROM job_changes)`); n != 0 {
			t.Errorf("%d rows count jobs that are gone", n)
		}
	})
}

// Calls are counted exactly, their latencies within 5 %, and their days outlive them.
func TestCallsOfPastDays(t *testing.T) {
	onBoth(t, func(t *testing.T, s *seed) {
		random := rand.New(rand.NewPCG(3, 4))
		today := admin.DayOf(s.now)
		span := admin.Range{From: today - 5, To: today + 1}
		type key struct {
			day      admin.Day
			endpoint string
		}
		latencies, failures := map[key][]int64{}, map[key]int64{}
		for range 300 {
			k := key{today - admin.Day(random.IntN(6)), []string{"progress", "upload", "other"}[random.IntN(3)]}
			at := k.day.Start().Add(time.Duration([]int64{0, int64(24*hour - ms), random.Int64N(int64(24 * hour))}[random.IntN(3)]))
			latency, ok := int64(1)<<random.IntN(20)+random.Int64N(50), random.IntN(3) > 0
			s.call(k.endpoint, ok, latency, at)
			latencies[k] = append(latencies[k], latency)
			if !ok {
				failures[k]++
			}
		}
		calls := admin.NewCallLog(s.db, slog.New(slog.DiscardHandler))
		for _, when := range []string{"at once", "after the calls are deleted"} {
			for _, c := range must(s.reports.ExternalCalls(t.Context(), span))(t) {
				k := key{c.Day, c.Endpoint}
				want := admin.Calls{Day: c.Day, Provider: "separation", Endpoint: c.Endpoint, Count: int64(len(latencies[k])), Failures: failures[k]}
				if n := len(latencies[k]); n > 0 {
					slices.Sort(latencies[k])
					exact := latencies[k][(95*n+99)/100-1]
					if off := math.Abs(float64(c.P95Ms-exact)) / float64(exact); off > 0.05 {
						t.Errorf("%s: p95 %d ms, want %d ms to 5 %%", when, c.P95Ms, exact)
					}
					want.P95Ms, want.FailureRate = c.P95Ms, float64(failures[k])/float64(n)
				}
				equal(t, when, c, want)
			}
			if err := calls.Sweep(t.Context(), 2*24*hour); err != nil {
				t.Fatal(err)
			}
			if n := s.number(`SELECT COUNT(*) FROM provider_calls WHERE created_at < $1`, (today - 2).Start().UnixMilli()); n != 0 {
				t.Errorf("%d calls outlived their days", n)
			}
		}
	})
}
