package admin

import (
	"context"
	"fmt"
	"log/slog"
	"math"
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

// callsByDay is the SQL for the calls on the days from $1 to before $2, by day, provider and endpoint: their number,
// their failures, and the 95th percentile of latency, which is the latency of rank ceil(0.95 n) of n calls, computed
// in integers.
const callsByDay = `SELECT day AS date, provider, endpoint, calls AS call_count, CAST(SUM(failures) AS BIGINT) AS failure_count,
		MIN(CASE WHEN place >= (95 * calls + 99) / 100 THEN latency_ms END) AS p95_latency_ms
	FROM (SELECT day, provider, endpoint, latency_ms, failures,
			SUM(calls) OVER (PARTITION BY day, provider, endpoint ORDER BY latency_ms) AS place,
			CAST(SUM(calls) OVER (PARTITION BY day, provider, endpoint) AS BIGINT) AS calls
		FROM provider_call_days WHERE day >= $1 AND day < $2) AS ranked
	GROUP BY day, provider, endpoint, calls`

// Sweep deletes calls older than lifetime. Their days stay counted.
func (c *CallLog) Sweep(ctx context.Context, lifetime time.Duration) error {
	if _, err := c.db.Exec(ctx, `DELETE FROM provider_calls WHERE created_at < (SELECT now_ms() / 86400000 - $1) * 86400000`,
		int64(lifetime/(24*time.Hour))); err != nil {
		return fmt.Errorf("delete old calls: %w", err)
	}
	return nil
}

// rounded is the latency as which a call is counted: exact below 50 ms, and within 5 % above, so that a day has few
// different latencies.
func rounded(ms int64) int64 {
	const ratio = 1.08 // of the bounds of a bucket
	if ms < 50 {
		return ms
	}
	bucket := math.Floor(math.Log(float64(ms)) / math.Log(ratio))
	return int64(math.Round(math.Pow(ratio, bucket+0.5)))
}

func (c *CallLog) write(ctx context.Context, call timedCall) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := WriteCall(ctx, c.db, call.Call, call.at)
	if err != nil {
		c.log.Warn("provider call not recorded", "endpoint", call.Endpoint, "err", err)
	}
}

// WriteCall stores a call and counts it in its day.
func WriteCall(ctx context.Context, d *db.DB, call separator.Call, at time.Time) error {
	success := 0
	if call.Success {
		success = 1
	}
	ms := call.Latency.Milliseconds()
	return d.InTx(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO provider_calls (id, provider, endpoint, success, status, latency_ms, created_at)
			VALUES ($1, 'separation', $2, $3, $4, $5, $6)`, uuid.NewString(), call.Endpoint, success, call.Status, ms, at.UnixMilli()); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO provider_call_days (day, provider, endpoint, latency_ms, calls, failures)
			VALUES ($1, 'separation', $2, $3, 1, $4)
			ON CONFLICT (day, provider, endpoint, latency_ms) DO UPDATE SET calls = provider_call_days.calls + 1,
				failures = provider_call_days.failures + excluded.failures`,
			int64(DayOf(at)), call.Endpoint, rounded(ms), 1-success)
		return err
	})
}
