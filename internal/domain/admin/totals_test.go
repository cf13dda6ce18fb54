package admin_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"cutroom/internal/domain/admin"
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
	rows, err := s.db.Query(s.t.Context(), `SELECT CASE kind WHEN 'render' THEN 0 ELSE 1 END, state, created_at, source_duration_ms FROM jobs`)
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

// The totals match the rows: ended jobs are counted by day, and the others one by one.
func TestTotalsAreThoseOfTheRows(t *testing.T) {
	onBoth(t, func(t *testing.T, s *seed) {
		random := rand.New(rand.NewPCG(1, 2))
		today := admin.DayOf(s.now)
		span := admin.Range{From: today - 3, To: today + 1}
		lengths := []time.Duration{0, minute - ms, minute, 5*minute - ms, 5 * minute, 15 * minute, hour - ms, hour, 30 * hour}
		ann := s.user("", "")
		for range 100 {
			at := span.From.Start().Add(time.Duration(random.Int64N(int64(4*24*hour)))).UnixMilli() - 24*hour.Milliseconds()
			if random.IntN(2) == 0 { // around midnight UTC
				at = span.From.Start().Add(time.Duration(random.IntN(5))*24*hour).UnixMilli() - random.Int64N(2)
			}
			add, states := s.render, []string{"PENDING", "PROCESSING", "COMPLETED", "FAILED"}
			if random.IntN(2) == 0 {
				add, states = s.separation, []string{"QUEUED", "SUBMITTING", "PROCESSING", "READY", "DISPOSED", "FAILED"}
			}
			add(ann, states[random.IntN(len(states))], time.UnixMilli(at), lengths[random.IntN(len(lengths))])
		}
		o := must(s.reports.Overview(t.Context()))(t)
		o.Users, o.ActiveUsers = 0, 0
		got := fmt.Sprintf("%+v %+v %+v %+v", o, must(s.reports.Daily(t.Context(), span))(t),
			must(s.reports.DurationHistogram(t.Context()))(t), must(s.reports.StatusBreakdown(t.Context()))(t))
		if want := s.raw(span); got != want {
			t.Errorf("\n got %s\nwant %s", got, want)
		}
	})
}
