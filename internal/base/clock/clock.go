// Package clock is the clock for everything that expires: access tokens, stem links and, on the embedded database,
// every lifetime in a row.
//
// It is the time of day. Only the sandbox moves it ahead, so that app developers can watch things expire; no setting
// and no command of the service does.
package clock

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

var ahead atomic.Int64

// Now returns the time of day, plus what Advance added.
func Now() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }

// Advance moves the clock of this process ahead, once at its start.
func Advance(by time.Duration) { ahead.Store(int64(by)) }

var steady atomic.Bool

// Jitter returns a random duration below limit. Replicas wait for it so that they do not all act at once.
func Jitter(limit time.Duration) time.Duration {
	if steady.Load() || limit <= 0 {
		return 0
	}
	return rand.N(limit)
}

// NoJitter makes every later Jitter of this process 0, so that a simulation repeats.
func NoJitter() { steady.Store(true) }
