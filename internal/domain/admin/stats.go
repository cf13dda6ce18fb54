package admin

import (
	"context"
	"slices"
)

// Overview has the six main numbers of the service.
type Overview struct {
	Users       int64 `json:"totalUsers"`
	Renders     int64 `json:"totalRenders"`
	Separations int64 `json:"totalSeparations"`
	Jobs        int64 `json:"totalJobs"`
	// SourceDurationMs is the sum over all jobs, including failed ones.
	SourceDurationMs int64 `json:"totalSourceDurationMs"`
	// ActiveUsers is the number of users who signed in or submitted a job in the last 7 times 24 hours.
	ActiveUsers int64 `json:"activeUsersLast7Days"`
}

// Overview counts all jobs and users.
func (r *Reports) Overview(ctx context.Context) (Overview, error) {
	// The subquery makes PostgreSQL read now_ms() once. Otherwise it would call it for every row and could not use the
	// index.
	return single[Overview](ctx, r.db, `SELECT (SELECT COUNT(*) FROM users WHERE erasing_at IS NULL) AS total_users,
			`+sum("CASE kind WHEN 'render' THEN jobs END")+` AS total_renders,
			`+sum("CASE kind WHEN 'separation' THEN jobs END")+` AS total_separations,
			`+sum("jobs")+` AS total_jobs, `+sum("source_duration_ms")+` AS total_source_duration_ms,
			(SELECT COUNT(*) FROM users WHERE erasing_at IS NULL AND last_active_at >= (SELECT now_ms() - $1)) AS active_users_last7_days
		FROM `+allJobs, 7*dayMs)
}

// Daily counts the jobs submitted on one day.
type Daily struct {
	Day              Day   `json:"date"`
	Renders          int64 `json:"renderCount"`
	Separations      int64 `json:"separationCount"`
	SourceDurationMs int64 `json:"totalSourceDurationMs"`
}

// Daily returns the jobs of every day of the range.
func (r *Reports) Daily(ctx context.Context, span Range) ([]Daily, error) {
	return byDay[Daily](ctx, r.db, span, `SELECT day AS date, `+sum("CASE kind WHEN 'render' THEN jobs END")+` AS render_count,
			`+sum("CASE kind WHEN 'separation' THEN jobs END")+` AS separation_count, `+sum("source_duration_ms")+` AS total_source_duration_ms
		FROM `+allJobs+` WHERE day >= CAST($1 AS BIGINT) / 86400000 AND day < CAST($2 AS BIGINT) / 86400000 GROUP BY day`)
}

// Signups counts the users who registered on one day, by provider, except those who have deleted their account.
type Signups struct {
	Day       Day   `json:"date"`
	ProviderA int64 `json:"providerACount"`
	ProviderB int64 `json:"providerBCount"`
}

// Signups returns the new users of every day of the range.
func (r *Reports) Signups(ctx context.Context, span Range) ([]Signups, error) {
	return byDay[Signups](ctx, r.db, span, `SELECT created_at / 86400000 AS date,
			SUM(CASE WHEN provider = 'provider_a' THEN 1 ELSE 0 END) AS provider_a_count,
			SUM(CASE WHEN provider = 'provider_b' THEN 1 ELSE 0 END) AS provider_b_count
		FROM users WHERE erasing_at IS NULL AND created_at >= $1 AND created_at < $2
		GROUP BY created_at / 86400000`)
}

// Calls counts one day's calls to one endpoint of the separation provider.
type Calls struct {
	Day      Day    `json:"date"`
	Provider string `json:"provider"`
	Endpoint string `json:"endpoint"`
	Count    int64  `json:"callCount"`
	Failures int64  `json:"failureCount"`
	// FailureRate is the share of calls that failed, 0 to 1.
	FailureRate float64 `json:"failureRate"`
	// P95Ms is the latency in milliseconds that 95 % of the calls did not exceed (nearest rank), to 5 %. It is 0 on a
	// day without calls.
	P95Ms int64 `json:"p95LatencyMs"`
}

// usualCalls are the calls that every separation makes, in order. Reports include them even on days without calls.
var usualCalls = []string{"upload-token", "upload", "register", "audio-separation", "progress", "project", "download"}

// ExternalCalls returns a row for every day of the range and each of the usual calls and any other call made in the
// range. Within a day the usual calls come first.
func (r *Reports) ExternalCalls(ctx context.Context, span Range) ([]Calls, error) {
	rows, err := list[Calls](ctx, r.db, callsByDay+` ORDER BY endpoint, day`, int64(span.From), int64(span.To))
	if err != nil {
		return nil, err
	}
	type cell struct {
		endpoint string
		day      Day
	}
	order, made := slices.Clone(usualCalls), map[cell]Calls{}
	for _, c := range rows {
		if !slices.Contains(order, c.Endpoint) {
			order = append(order, c.Endpoint)
		}
		c.FailureRate = float64(c.Failures) / float64(c.Count)
		made[cell{c.Endpoint, c.Day}] = c
	}
	var out []Calls
	for day := span.From; day < span.To; day++ {
		for _, endpoint := range order {
			c := made[cell{endpoint, day}] // zero without calls
			c.Day, c.Provider, c.Endpoint = day, provider, endpoint
			out = append(out, c)
		}
	}
	return out, nil
}

// Bucket is a bar of the duration histogram. It includes the lower bound in its name, but not the upper one.
type Bucket struct {
	Bucket string `json:"bucket"`
	Count  int64  `json:"count"`
}

// DurationHistogram counts all jobs by the duration of their source, the shortest first.
func (r *Reports) DurationHistogram(ctx context.Context) ([5]Bucket, error) {
	out := [5]Bucket{{Bucket: "0-1m"}, {Bucket: "1-5m"}, {Bucket: "5-15m"}, {Bucket: "15-60m"}, {Bucket: "60m+"}}
	type row struct {
		Bucket int   `json:"bucket"`
		Count  int64 `json:"count"`
	}
	rows, err := list[row](ctx, r.db, `SELECT bucket, `+sum("jobs")+` AS count FROM `+allJobs+` GROUP BY bucket`)
	for _, row := range rows {
		out[row.Bucket].Count = row.Count
	}
	return out, err
}
