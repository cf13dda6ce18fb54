package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"cutroom/internal/db"
	"cutroom/internal/upstream/separator"
)

// callLog writes the provider's calls to the database, in the background and
// in order: a slow database must not slow a call, nor a burst fill memory.
type callLog struct {
	db    *db.DB
	log   *slog.Logger
	calls chan timedCall
}

type timedCall struct {
	separator.Call
	at time.Time
}

func newCallLog(d *db.DB, log *slog.Logger) *callLog {
	return &callLog{db: d, log: log, calls: make(chan timedCall, 1024)}
}

// record takes a call to be written.
func (c *callLog) record(call separator.Call) {
	select {
	case c.calls <- timedCall{call, time.Now()}:
	default:
		c.log.Warn("a provider call is missing from the statistics: too many at once", "endpoint", call.Endpoint)
	}
}

// run writes calls until ctx ends, and then what is left.
func (c *callLog) run(ctx context.Context) error {
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
					return nil
				}
			}
		}
	}
}

// sweep forgets calls that are older than the lifetime.
func (c *callLog) sweep(ctx context.Context, lifetime time.Duration) error {
	_, err := c.db.Exec(ctx, `DELETE FROM provider_calls WHERE created_at < now_ms() - $1`, lifetime.Milliseconds())
	return err
}

func (c *callLog) write(ctx context.Context, call timedCall) {
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
