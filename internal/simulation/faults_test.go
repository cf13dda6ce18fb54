package simulation

import (
	"math/rand/v2"
	"slices"
	"time"
)

// kind is what a fault does.
type kind int

const (
	none        kind = iota
	failBefore       // the call fails and has no effect
	loseAnswer       // it takes effect, and its caller is told that it failed
	failInside       // a statement of the transaction fails
	deadlock         // the database rolls the transaction back, which is tried again
	crashBefore      // the replica dies before the call
	crashInside      // within the transaction
	crashAfter       // when the call has taken effect
	stall            // the call takes long
	freeze           // the whole replica stands still
	jump             // the database's clock goes ahead
	stop             // the replica is told to stop, and does
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

// fault strikes the first call that it suits from a position on, which counts the calls
// that have an effect.
type fault struct {
	at   int
	kind kind
	arg  int
}

// long is how long a stall, a freeze or a jump is: longer than a lease in most cases.
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

// maxFaults bounds the faults of one schedule: what fails because of two faults is rare,
// because of five unheard of.
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
