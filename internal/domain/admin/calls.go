package admin

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/upstream/separator"
)

// CallLog counts the provider's calls in the database, in the background, because a slow database must not slow down a
// call. The workers' own limits bound how many calls are made, and so how many are counted, at the same time.
type CallLog struct {
	db      *db.DB
	log     *slog.Logger
	writing sync.WaitGroup
}

// NewCallLog returns a log.
func NewCallLog(d *db.DB, log *slog.Logger) *CallLog { return &CallLog{db: d, log: log} }

// Record begins to count a call. The call is lost if that takes longer than 5 seconds.
func (c *CallLog) Record(call separator.Call) {
	at := time.Now()
	c.writing.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := WriteCall(ctx, c.db, call, at); err != nil {
			c.log.Warn("provider call not recorded", "endpoint", call.Endpoint, "err", err)
		}
	})
}

// Wait returns when every recorded call is counted or lost. Call it after the last Record.
func (c *CallLog) Wait() { c.writing.Wait() }

// provider is the only one whose calls are counted.
const provider = "separation"

// callsByDay is the SQL for the calls on the days from $1 to before $2, by day and endpoint: their number, their
// failures, and the 95th percentile of latency, which is the latency of rank ceil(0.95 n) of n calls, in integers.
const callsByDay = `SELECT day AS date, endpoint, calls AS call_count, CAST(SUM(failures) AS BIGINT) AS failure_count,
		MIN(CASE WHEN place >= (95 * calls + 99) / 100 THEN latency_ms END) AS p95_latency_ms
	FROM (SELECT day, endpoint, latency_ms, failures,
			SUM(calls) OVER (PARTITION BY day, endpoint ORDER BY latency_ms) AS place,
			CAST(SUM(calls) OVER (PARTITION BY day, endpoint) AS BIGINT) AS calls
		FROM provider_call_days WHERE day >= $1 AND day < $2) AS ranked
	GROUP BY day, endpoint, calls`

// rounded returns the latency under which a call is counted: exact below 50 ms, and within 5 % above, so that a day has
// few distinct latencies.
func rounded(ms int64) int64 {
	const ratio = 1.08 // of the bounds of a bucket
	if ms < 50 {
		return ms
	}
	bucket := math.Floor(math.Log(float64(ms)) / math.Log(ratio))
	return int64(math.Round(math.Pow(ratio, bucket+0.5)))
}

// WriteCall counts a call in its day.
func WriteCall(ctx context.Context, d *db.DB, call separator.Call, at time.Time) error {
	failures := 0
	if !call.Success {
		failures = 1
	}
	_, err := d.Exec(ctx, `INSERT INTO provider_call_days (day, provider, endpoint, latency_ms, calls, failures)
		VALUES ($1, '`+provider+`', $2, $3, 1, $4)
		ON CONFLICT (day, provider, endpoint, latency_ms) DO UPDATE SET calls = provider_call_days.calls + 1,
			failures = provider_call_days.failures + excluded.failures`,
		int64(DayOf(at)), call.Endpoint, rounded(call.Latency.Milliseconds()), failures)
	return err
}
