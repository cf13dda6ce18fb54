package httpapi

import (
	"context"
	"slices"
	"sync"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
)

const (
	// maxTurns is how many requests of one user work with the database at once, on this replica.
	maxTurns = 16
	// maxInLine is how many more may wait for their turn. No app ever has that many requests under way.
	maxInLine = 256
)

// errLine refuses a request of a user who already has maxInLine requests in line.
var errLine = fault.Busy(5 * time.Second)

// turns keeps the requests of one user from taking all connections of the database. Further requests of the user wait,
// first come, first served. A request has its turn only during a statement or a transaction, and so not while bodies
// are transferred, while a client waits for a change, or while ffmpeg, a store or an identity provider works.
type turns struct {
	mu    sync.Mutex
	users map[string]*line // of users with a turn
}

// line holds the turns of one user and the requests that wait for one.
type line struct {
	taken   int             // turns, at most maxTurns
	waiting []chan struct{} // closed when the turn comes
}

func newTurns() *turns { return &turns{users: map[string]*line{}} }

// of returns the gate of a user for [db.WithGate].
func (t *turns) of(userID string) db.Gate {
	return func(ctx context.Context) (leave func(), err error) {
		if err := t.take(ctx, userID); err != nil {
			return nil, err
		}
		return func() { t.give(userID) }, nil
	}
}

// take waits for a turn of the user, until ctx ends.
func (t *turns) take(ctx context.Context, userID string) error {
	t.mu.Lock()
	l := t.users[userID]
	if l == nil {
		l = &line{}
		t.users[userID] = l
	}
	if l.taken < maxTurns {
		l.taken++
		t.mu.Unlock()
		return nil
	}
	if len(l.waiting) >= maxInLine {
		t.mu.Unlock()
		return errLine
	}
	turn := make(chan struct{})
	l.waiting = append(l.waiting, turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	at := slices.Index(l.waiting, turn)
	if at >= 0 {
		l.waiting = slices.Delete(l.waiting, at, at+1)
	}
	t.mu.Unlock()
	if at < 0 { // the turn arrived at the same moment
		t.give(userID)
	}
	return ctx.Err()
}

// give ends a turn of the user, and passes it to the first in line.
func (t *turns) give(userID string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.users[userID]
	if len(l.waiting) > 0 {
		close(l.waiting[0])
		l.waiting = slices.Delete(l.waiting, 0, 1)
		return
	}
	if l.taken--; l.taken == 0 {
		delete(t.users, userID)
	}
}
