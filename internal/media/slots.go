package media

import (
	"container/list"
	"context"
	"sync"
)

// Slots bounds how many pieces of media work run at once in the process.
// Waiters are served first come, first served. Safe for concurrent use.
type Slots struct {
	mu      sync.Mutex
	free    int
	size    int
	waiters list.List // of chan struct{}; closed when the slot is handed over
}

// NewSlots returns a pool of n slots; n below 1 counts as 1.
func NewSlots(n int) *Slots {
	n = max(n, 1)
	return &Slots{free: n, size: n}
}

// Acquire waits for a slot. The returned release gives it back and may be
// called more than once. When ctx ends first the error is ctx's cause and
// release is nil.
func (s *Slots) Acquire(ctx context.Context) (release func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	if s.free > 0 && s.waiters.Len() == 0 {
		s.free--
		s.mu.Unlock()
		return sync.OnceFunc(s.release), nil
	}
	ready := make(chan struct{})
	place := s.waiters.PushBack(ready)
	s.mu.Unlock()

	select {
	case <-ready:
		return sync.OnceFunc(s.release), nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	select {
	case <-ready: // handed over between ctx's end and the lock: pass it on
		s.mu.Unlock()
		s.release()
	default:
		s.waiters.Remove(place)
		s.mu.Unlock()
	}
	return nil, context.Cause(ctx)
}

// TryAcquire takes a slot only when one is free now and nobody waits for it.
func (s *Slots) TryAcquire() (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free == 0 || s.waiters.Len() > 0 {
		return nil, false
	}
	s.free--
	return sync.OnceFunc(s.release), true
}

// release hands the slot to the longest waiter, or back to the pool.
func (s *Slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if first := s.waiters.Front(); first != nil {
		close(s.waiters.Remove(first).(chan struct{}))
		return
	}
	s.free++
}

// Size is the number of slots.
func (s *Slots) Size() int { return s.size }

// InUse is the number of slots taken now.
func (s *Slots) InUse() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size - s.free
}

// Waiting is the number of callers blocked in Acquire now.
func (s *Slots) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiters.Len()
}
