package simulation

import (
	"math/rand/v2"
	"slices"
	"time"
)

// kind is the effect of a fault.
type kind int

const (
	none        kind = iota
	failBefore       // the call fails and has no effect
	loseAnswer       // it takes effect, but the caller gets an error
	failInside       // a statement of the transaction fails
	deadlock         // the database rolls the transaction back, and the caller retries
	crashBefore      // the replica dies before the call
	crashInside      // within the transaction
	crashAfter       // after the call has taken effect
	stall            // the call takes a long time
	freeze           // the whole replica stops for a while
	jump             // the database's clock jumps ahead
	stop             // the replica is told to stop, and stops
	refused          // the provider answers 400
	broke            // 402
	busy             // 429, with a Retry-After
	overloaded       // 503, with a Retry-After
	broken           // 500
	garbled          // 200 and no JSON
	unreachable      // no connection
	giveUp           // the project fails
	kinds
)

var kindNames = [kinds]string{"", "fails", "answer lost", "statement fails", "deadlock", "crash before", "crash within", "crash after", "stalls",
	"replica freezes", "clock jumps", "stop", "400", "402", "429", "503", "500", "garbled", "unreachable", "project fails"}

func (k kind) String() string { return kindNames[k] }

// fault strikes the first suitable call from a position on. The position counts the calls that have an effect.
type fault struct {
	at   int
	kind kind
	arg  int
}

// long is the duration of a stall, a freeze or a jump: longer than a lease in most cases.
func (f fault) long() time.Duration {
	return []time.Duration{2 * time.Second, 10 * time.Second, 12 * time.Second, 25 * time.Second}[f.arg%4]
}

func (f fault) suits(c *call) bool {
	switch {
	case f.kind >= refused:
		return c.weight == paid
	case f.kind == failInside, f.kind == deadlock, f.kind == crashInside:
		return c.weight == transaction
	case c.weight == read:
		return f.kind == failBefore && f.arg%4 == 0
	}
	return true
}

// maxFaults bounds the faults of one schedule. Failures that need two faults are rare, and none was seen that needs
// five.
const maxFaults = 5

// drawFaults draws the faults of a schedule.
func drawFaults(rng *rand.Rand) []fault {
	faults := make([]fault, rng.IntN(maxFaults+1))
	for i := range faults {
		faults[i] = fault{at: rng.IntN(60), kind: 1 + kind(rng.IntN(int(kinds)-1)), arg: rng.IntN(1 << 10)}
	}
	slices.SortStableFunc(faults, func(a, b fault) int { return a.at - b.at })
	return faults
}
