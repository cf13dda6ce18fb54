// Package ratelimit counts what happens in the database, so that all replicas
// share one count and none is lost with a process. It owns the table of the last
// times of each key, and knows neither users nor addresses: a key is any text.
package ratelimit

import (
	"context"
	"fmt"
	"time"

	"cutroom/internal/db"
	"cutroom/internal/fault"
)

// A Limit lets at most PerMinute (>= 1) of something through in any span of 60
// seconds, for each key. Limits of different names count apart.
type Limit struct {
	Name      string
	PerMinute int
}

const window = time.Minute

// digits is the length of a time in the row: epoch milliseconds have 13 digits
// until the year 2286.
const digits = 13

// Take counts one, or answers that it is one too many: then nothing is counted
// and the error is the [fault.RateLimited] that the client gets.
//
// The row of a key holds the last PerMinute times. One more is let in when the
// oldest of them is a minute old, and takes its place. Both is one statement, and
// the row's lock puts requests of one key in order.
func (l Limit) Take(ctx context.Context, d *db.DB, key string) error {
	var taken int
	err := d.ExecRow(ctx, `INSERT INTO request_times (bucket, times) VALUES ($1, CAST(now_ms() AS TEXT))
		ON CONFLICT (bucket) DO UPDATE SET times = CAST(now_ms() AS TEXT) || substr(request_times.times, 1, $2)
			WHERE substr(request_times.times, $2 + 1, $3) <= CAST(now_ms() - $4 AS TEXT)
		RETURNING 1`, []any{l.bucket(key), l.oldest(), digits, window.Milliseconds()}, &taken)
	switch {
	case err == nil:
		return nil
	case !db.IsNoRows(err):
		return fmt.Errorf("count request: %w", err)
	}
	wait, err := l.wait(ctx, d, key)
	if err != nil {
		return err
	}
	return limited(wait)
}

// Check answers as [Limit.Take] would, and counts nothing: it is for limits on
// what is known only afterwards, such as refusals.
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

// wait is how long it takes until one more is let in, <= 0 when it is now.
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

// Sweep forgets keys of which nothing was let in for a minute.
func Sweep(ctx context.Context, d *db.DB) error {
	_, err := d.Exec(ctx, `DELETE FROM request_times WHERE substr(times, 1, $1) <= CAST(now_ms() - $2 AS TEXT)`, digits, window.Milliseconds())
	if err != nil {
		return fmt.Errorf("sweep request limits: %w", err)
	}
	return nil
}
