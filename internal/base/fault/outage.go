package fault

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// repeatAfter is how often the log repeats a failure that lasts.
const repeatAfter = time.Minute

// Outage logs failures that repeat while a dependency is down, each kind at most once a minute. The zero value is ready
// for use, concurrently too.
type Outage struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// Log logs the message, unless it logged this kind within the last minute.
func (o *Outage) Log(log *slog.Logger, level slog.Level, kind, message string, args ...any) {
	o.mu.Lock()
	if o.last == nil {
		o.last = map[string]time.Time{}
	}
	due := time.Since(o.last[kind]) >= repeatAfter
	if due {
		o.last[kind] = time.Now()
	}
	o.mu.Unlock()
	if due {
		log.Log(context.Background(), level, message, args...)
	}
}

// Over logs the message if this kind was logged since the last Over.
func (o *Outage) Over(log *slog.Logger, kind, message string, args ...any) {
	o.mu.Lock()
	_, lasted := o.last[kind]
	delete(o.last, kind)
	o.mu.Unlock()
	if lasted {
		log.Info(message, args...)
	}
}
