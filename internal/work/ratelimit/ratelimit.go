// Package ratelimit counts events in the database, so that all replicas share one count that survives a restart. It
// owns the table with the latest times of each key, and knows neither users nor addresses: a key is any text.
package ratelimit

import (
	"context"
	"fmt"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
)

// A Limit allows at most PerMinute (>= 1) events per key in any span of 60 seconds. Limits with different names count
// separately.
type Limit struct {
	Name      string
	PerMinute int
}

const window = time.Minute

// digits is the length of a time in the row: epoch milliseconds have 13 digits until the year 2286.
const digits = 13

// Take counts one event. If that exceeds the limit it counts nothing and returns the
// [fault.RateLimited] for the client.
//
// The row of a key holds its last PerMinute times. A new time replaces the oldest once that is a minute old. Both
// happen in one statement, and the row's lock serializes requests of one key.
func (l Limit) Take(ctx context.Context, d *db.DB, key string) error {
	_, err := l.Reserve(ctx, d, key)
	return err
}

// Reserve is [Limit.Take] for an event that may turn out not to count; [Limit.Return] takes it back.
func (l Limit) Reserve(ctx context.Context, d *db.DB, key string) (taken string, err error) {
	err = d.ExecRow(ctx, `INSERT INTO request_times (bucket, times) VALUES ($1, CAST(now_ms() AS TEXT))
		ON CONFLICT (bucket) DO UPDATE SET times = CAST(now_ms() AS TEXT) || substr(request_times.times, 1, $2)
			WHERE substr(request_times.times, $2 + 1, $3) <= CAST(now_ms() - $4 AS TEXT)
		RETURNING substr(times, 1, $3)`, []any{l.bucket(key), l.oldest(), digits, window.Milliseconds()}, &taken)
	switch {
	case err == nil:
		return taken, nil
	case !db.IsNoRows(err):
		return "", fmt.Errorf("count request: %w", err)
	}
	wait, err := l.wait(ctx, d, key)
	if err != nil {
		return "", err
	}
	return "", limited(wait)
}

// Return takes back what Reserve counted. Until then it counts, so that at no time more than PerMinute events are under
// way or counted.
//
// The time that the event replaced was at least a minute old, so the row does not need it back. If several events have
// the same millisecond, Return may remove any of them.
func (l Limit) Return(ctx context.Context, d *db.DB, key, taken string) error {
	for at := range l.PerMinute {
		n, err := d.Exec(ctx, `UPDATE request_times SET times = substr(times, 1, $3) || substr(times, $3 + $4 + 1)
			WHERE bucket = $1 AND substr(times, $3 + 1, $4) = $2`, l.bucket(key), taken, at*digits, digits)
		if err != nil {
			return fmt.Errorf("take a counted request back: %w", err)
		}
		if n > 0 {
			break
		}
	}
	_, err := d.Exec(ctx, `DELETE FROM request_times WHERE bucket = $1 AND times = ''`, l.bucket(key))
	if err != nil {
		return fmt.Errorf("take a counted request back: %w", err)
	}
	return nil
}

// Check answers like [Limit.Take] and counts nothing, for limits on what is known only afterwards, such as refusals.
func (l Limit) Check(ctx context.Context, d *db.DB, key string) error {
	wait, err := l.wait(ctx, d, key)
	if err != nil || wait <= 0 {
		return err
	}
	return limited(wait)
}

func limited(wait time.Duration) error {
	f := fault.New(fault.RateLimited, "rate_limited")
	f.RetryAfter = max(wait, time.Second)
	return f
}

// wait is how long until the next event is allowed, <= 0 if it is allowed now.
func (l Limit) wait(ctx context.Context, d *db.DB, key string) (time.Duration, error) {
	var ms int64
	err := d.QueryRow(ctx, `SELECT CAST(substr(times, $2 + 1, $3) AS BIGINT) + $4 - now_ms() FROM request_times
		WHERE bucket = $1 AND length(times) > $2`, l.bucket(key), l.oldest(), digits, window.Milliseconds()).Scan(&ms)
	if err != nil && !db.IsNoRows(err) {
		return 0, fmt.Errorf("look at the limit of requests: %w", err)
	}
	return time.Duration(ms) * time.Millisecond, nil
}

func (l Limit) bucket(key string) string { return l.Name + ":" + key }

// oldest is the position, in a full row, of the time that must be a minute old.
func (l Limit) oldest() int { return (l.PerMinute - 1) * digits }

// Sweep removes keys without an event in the last minute.
func Sweep(ctx context.Context, d *db.DB) error {
	_, err := d.Exec(ctx, `DELETE FROM request_times WHERE substr(times, 1, $1) <= CAST(now_ms() - $2 AS TEXT)`, digits, window.Milliseconds())
	if err != nil {
		return fmt.Errorf("sweep request limits: %w", err)
	}
	return nil
}
