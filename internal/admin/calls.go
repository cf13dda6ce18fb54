package admin

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"cutroom/internal/db"
	"cutroom/internal/upstream/separator"
)

// CallLog writes the provider's calls to the database, in order and in the background. A slow database must not
// slow down a call, and a burst must not fill the memory.
type CallLog struct {
	db    *db.DB
	log   *slog.Logger
	calls chan timedCall
}

type timedCall struct {
	separator.Call
	at time.Time
}

// NewCallLog returns a log. It writes only while Run runs.
func NewCallLog(d *db.DB, log *slog.Logger) *CallLog {
	return &CallLog{db: d, log: log, calls: make(chan timedCall, 1024)}
}

// Record queues a call to be written.
func (c *CallLog) Record(call separator.Call) {
	select {
	case c.calls <- timedCall{call, time.Now()}:
	default:
		c.log.Warn("a provider call is missing from the statistics: too many at once", "endpoint", call.Endpoint)
	}
}

// Run writes calls until ctx ends, then drains the queue.
func (c *CallLog) Run(ctx context.Context) {
	for {
		select {
		case call := <-c.calls:
			c.write(ctx, call)
		case <-ctx.Done():
			for {
				select {
				case call := <-c.calls:
					c.write(ctx, call)
				default:
					return
				}
			}
		}
	}
}

// callsByDay returns the SQL for the calls on the days that meet condition, by day, provider and endpoint:
// their number, their failures, and the 95th percentile of latency, which is the latency of rank ceil(0.95 n)
// of n calls, computed in integers. A trigger counts every call by its latency.
func callsByDay(condition string) string {
	return `SELECT day, provider, endpoint, calls, CAST(SUM(failures) AS BIGINT) AS failures,
			MIN(CASE WHEN place >= (95 * calls + 99) / 100 THEN latency_ms END) AS p95_ms
		FROM (SELECT day, provider, endpoint, latency_ms, failures,
				SUM(calls) OVER (PARTITION BY day, provider, endpoint ORDER BY latency_ms) AS place,
				CAST(SUM(calls) OVER (PARTITION BY day, provider, endpoint) AS BIGINT) AS calls
			FROM provider_latencies WHERE ` + condition + `) AS ranked
		GROUP BY day, provider, endpoint, calls`
}

// Sweep stores the totals of days that ended more than an hour ago, and deletes calls older than lifetime. If a
// call is written after that hour, its day has more calls than its total, and Sweep recomputes the total. Any
// number of replicas may run it at once.
func (c *CallLog) Sweep(ctx context.Context, lifetime time.Duration) error {
	days, err := db.All(ctx, c.db, func(rows db.Scanner) (day Day, err error) { err = rows.Scan(&day); return day, err },
		`SELECT day FROM (SELECT day, SUM(calls) AS calls FROM provider_latencies
			WHERE day < (SELECT (now_ms() - 3600000) / 86400000) GROUP BY day) AS past
		WHERE calls > COALESCE((SELECT SUM(d.calls) FROM provider_call_days d WHERE d.day = past.day), 0) ORDER BY day`)
	if err != nil {
		return fmt.Errorf("look for days to add up: %w", err)
	}
	for _, day := range days { // the oldest first: reports take a day as counted if a later one is
		_, err := c.db.Exec(ctx, `INSERT INTO provider_call_days (day, provider, endpoint, calls, failures, p95_ms) `+callsByDay("day = $1")+`
			ON CONFLICT (day, provider, endpoint) DO UPDATE SET calls = excluded.calls, failures = excluded.failures, p95_ms = excluded.p95_ms`,
			int64(day))
		if err != nil {
			return fmt.Errorf("add up calls of %s: %w", day, err)
		}
	}
	for _, query := range []string{`DELETE FROM provider_calls WHERE created_at < (SELECT now_ms() / 86400000 - $1) * 86400000`,
		`DELETE FROM provider_latencies WHERE day < (SELECT now_ms() / 86400000 - $1)`} {
		if _, err := c.db.Exec(ctx, query, int64(lifetime/(24*time.Hour))); err != nil {
			return fmt.Errorf("delete old calls: %w", err)
		}
	}
	return nil
}

func (c *CallLog) write(ctx context.Context, call timedCall) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	success := 0
	if call.Success {
		success = 1
	}
	_, err := c.db.Exec(ctx, `INSERT INTO provider_calls (id, provider, endpoint, success, status, latency_ms, created_at)
		VALUES ($1, 'separation', $2, $3, $4, $5, $6)`,
		uuid.NewString(), call.Endpoint, success, call.Status, call.Latency.Milliseconds(), call.at.UnixMilli())
	if err != nil {
		c.log.Warn("provider call not recorded", "endpoint", call.Endpoint, "err", err)
	}
}
