package job

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// sayAgain is how often the log repeats what lasts.
const sayAgain = time.Minute

// Outage logs failures that repeat while something is out of reach, each kind at
// most once a minute. The zero value is ready for use, concurrently too.
type Outage struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// Log logs the message, unless it did so with this kind lately.
func (o *Outage) Log(log *slog.Logger, level slog.Level, kind, message string, args ...any) {
	o.mu.Lock()
	if o.last == nil {
		o.last = map[string]time.Time{}
	}
	say := time.Since(o.last[kind]) >= sayAgain
	if say {
		o.last[kind] = time.Now()
	}
	o.mu.Unlock()
	if say {
		log.Log(context.Background(), level, message, args...)
	}
}

// Over logs the message where this kind was logged since it was last over.
func (o *Outage) Over(log *slog.Logger, kind, message string, args ...any) {
	o.mu.Lock()
	_, lasted := o.last[kind]
	delete(o.last, kind)
	o.mu.Unlock()
	if lasted {
		log.Info(message, args...)
	}
}
