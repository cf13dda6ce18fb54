// The totals of jobs that have ended, by day, state and length: job_days. Every move that ends a job, or runs one
// again, updates them in its own transaction, so that reports need not read years of jobs.

package job

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"cutroom/internal/base/db"
)

// ended reports whether a state is the end of a job.
func ended(state string) bool {
	return slices.Contains([]string{"COMPLETED", "READY", "DISPOSED", "FAILED"}, state)
}

// count counts jobs that moved from one state to another, and keeps the queue's line up to date. from is "" if the jobs
// were unfinished. Call it late in a transaction, because other moves wait for the totals that it locks.
func (t Table) count(ctx context.Context, tx *db.Tx, from, to string, rows ...moved) error {
	if t.Line != nil && !(ended(from) && ended(to)) {
		owners := make([]string, len(rows))
		for i, m := range rows {
			owners[i] = m.UserID
		}
		slices.Sort(owners)
		if owners = slices.Compact(owners); len(owners) > 0 {
			if err := t.Line(ctx, tx, owners); err != nil {
				return err
			}
		}
	}
	totals := totals{}
	for _, m := range rows {
		totals.add(t.Kind, from, m, -1)
		totals.add(t.Kind, to, m, 1)
	}
	return totals.write(ctx, tx)
}

// DurationBuckets are the upper bounds, in milliseconds, of the histogram of source durations, whose last bucket has
// none.
var DurationBuckets = []int64{60_000, 300_000, 900_000, 3_600_000}

// Bucket is the SQL expression for the number of a duration's bucket.
func Bucket(column string) string {
	var sql strings.Builder
	for i, bound := range DurationBuckets {
		fmt.Fprintf(&sql, `WHEN %s < %d THEN %d `, column, bound, i)
	}
	return fmt.Sprintf(`CASE %sELSE %d END`, &sql, len(DurationBuckets))
}

// total is the key of a row of job_days.
type total struct {
	kind   string
	day    int64
	state  string
	bucket int
}

// totals are changes of job_days: jobs, and the milliseconds of their sources.
type totals map[total][2]int64

func (s totals) add(kind, state string, m moved, n int64) {
	if !ended(state) {
		return
	}
	bucket, _ := slices.BinarySearch(DurationBuckets, m.sourceMs+1) // a bound belongs to the bucket above it
	key := total{kind, m.createdAt / 86_400_000, state, bucket}
	s[key] = [2]int64{s[key][0] + n, s[key][1] + n*m.sourceMs}
}

// write adds the changes, always in the same order: otherwise two transactions could deadlock.
func (s totals) write(ctx context.Context, tx *db.Tx) error {
	keys := make([]total, 0, len(s))
	for key := range s {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b total) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.day, b.day), cmp.Compare(a.state, b.state), cmp.Compare(a.bucket, b.bucket))
	})
	for _, k := range keys {
		if _, err := tx.Exec(ctx, `INSERT INTO job_days (kind, day, state, bucket, jobs, source_duration_ms)
			VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (kind, day, state, bucket) DO UPDATE
			SET jobs = job_days.jobs + excluded.jobs, source_duration_ms = job_days.source_duration_ms + excluded.source_duration_ms`,
			k.kind, k.day, k.state, k.bucket, s[k][0], s[k][1]); err != nil {
			return fmt.Errorf("count jobs: %w", err)
		}
	}
	return nil
}
