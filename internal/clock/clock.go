// Package clock is the time by which the service judges what it has given out:
// access tokens, stem links and, on the embedded database, every lifetime in a
// row.
//
// It is the time of day. The sandbox alone moves it ahead, so that the author of
// an app sees things expire; no setting and no command of the service reaches it.
package clock

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

var ahead atomic.Int64

// Now is the time of day, as far ahead as Advance said.
func Now() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }

// Advance moves the clock of this process ahead, once at its start.
func Advance(by time.Duration) { ahead.Store(int64(by)) }

var steady atomic.Bool

// Jitter is a random part of limit, by which replicas spread what they would otherwise
// all do at once.
func Jitter(limit time.Duration) time.Duration {
	if steady.Load() || limit <= 0 {
		return 0
	}
	return rand.N(limit)
}

// NoJitter makes every later Jitter of this process 0, so that a simulation repeats.
func NoJitter() { steady.Store(true) }
