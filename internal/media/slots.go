package media

import (
	"context"
	"sync"
)

// Slots bounds how many pieces of media work run at once in the process. Who
// waits is served first come, first served. Safe for concurrent use.
type Slots struct{ taken chan struct{} }

// NewSlots returns a pool of n slots; n below 1 counts as 1.
func NewSlots(n int) *Slots { return &Slots{make(chan struct{}, max(n, 1))} }

// Acquire waits for a slot. The returned release gives it back and may be
// called more than once. When ctx ends first the error is ctx's cause and
// release is nil.
func (s *Slots) Acquire(ctx context.Context) (release func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case s.taken <- struct{}{}:
		return sync.OnceFunc(s.release), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// TryAcquire takes a slot only when one is free now.
func (s *Slots) TryAcquire() (release func(), ok bool) {
	select {
	case s.taken <- struct{}{}:
		return sync.OnceFunc(s.release), true
	default:
		return nil, false
	}
}

func (s *Slots) release() { <-s.taken }

// Size is the number of slots.
func (s *Slots) Size() int { return cap(s.taken) }

// InUse is the number of slots taken now.
func (s *Slots) InUse() int { return len(s.taken) }
