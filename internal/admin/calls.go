package admin

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"cutroom/internal/db"
	"cutroom/internal/upstream/separator"
)

// CallLog writes the provider's calls to the database, in the background and
// in order: a slow database must not slow a call, nor a burst fill memory.
type CallLog struct {
	db    *db.DB
	log   *slog.Logger
	calls chan timedCall
}

type timedCall struct {
	separator.Call
	at time.Time
}

// NewCallLog returns a log that writes once it runs.
func NewCallLog(d *db.DB, log *slog.Logger) *CallLog {
	return &CallLog{db: d, log: log, calls: make(chan timedCall, 1024)}
}

// Record takes a call to be written.
func (c *CallLog) Record(call separator.Call) {
	select {
	case c.calls <- timedCall{call, time.Now()}:
	default:
		c.log.Warn("a provider call is missing from the statistics: too many at once", "endpoint", call.Endpoint)
	}
}

// Run writes calls until ctx ends, and then what is left.
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

// Sweep forgets calls that are older than the lifetime.
func (c *CallLog) Sweep(ctx context.Context, lifetime time.Duration) error {
	_, err := c.db.Exec(ctx, `DELETE FROM provider_calls WHERE created_at < now_ms() - $1`, lifetime.Milliseconds())
	return err
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
