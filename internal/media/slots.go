package media

import (
	"context"
	"slices"
	"sync"
)

// Slots limits how many media operations run at once in the process, first come, first served. It is safe for
// concurrent use.
type Slots struct{ taken chan struct{} }

// NewSlots returns a pool of n slots; n below 1 counts as 1.
func NewSlots(n int) *Slots { return &Slots{make(chan struct{}, max(n, 1))} }

// Acquire waits for a slot. The returned release returns the slot and may be called more
// than once. If ctx ends first, the error is ctx's cause and release is nil.
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

// TryAcquire takes a slot only if one is free now.
func (s *Slots) TryAcquire() (release func(), ok bool) {
	select {
	case s.taken <- struct{}{}:
		return sync.OnceFunc(s.release), true
	default:
		return nil, false
	}
}

func (s *Slots) release() { <-s.taken }

// Size returns the number of slots.
func (s *Slots) Size() int { return cap(s.taken) }

// InUse returns the number of slots in use.
func (s *Slots) InUse() int { return len(s.taken) }

// FairSlots limits how many media operations run at once in the process and shares the slots among holders.
// Each holder has at most one slot. Waiting holders take turns, regardless of how much work each of them has
// waiting. It is safe for concurrent use.
type FairSlots struct {
	mu      sync.Mutex
	free    int
	holders map[string]*holder // all that hold a slot or wait for one
	turn    []*holder          // holders that wait without a slot, next first
}

// holder is one party that shares FairSlots. Its waiting work is in order of arrival.
type holder struct {
	busy    bool
	waiting []chan struct{}
}

// NewFairSlots returns a pool of n slots; n below 1 counts as 1.
func NewFairSlots(n int) *FairSlots {
	return &FairSlots{free: max(n, 1), holders: map[string]*holder{}}
}

// Acquire waits for a slot of the named holder, as Slots.Acquire does.
func (s *FairSlots) Acquire(ctx context.Context, name string) (release func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	granted := make(chan struct{})
	s.mu.Lock()
	h := s.holders[name]
	if h == nil {
		h = &holder{}
		s.holders[name] = h
	}
	if h.waiting = append(h.waiting, granted); len(h.waiting) == 1 && !h.busy {
		s.turn = append(s.turn, h)
	}
	s.grant()
	s.mu.Unlock()
	release = sync.OnceFunc(func() { s.release(name) })
	select {
	case <-granted:
		return release, nil
	case <-ctx.Done():
		if !s.leave(name, granted) {
			release() // it was granted at the same moment
		}
		return nil, context.Cause(ctx)
	}
}

// grant gives free slots to the holders whose turn it is.
func (s *FairSlots) grant() {
	for s.free > 0 && len(s.turn) > 0 {
		h := s.turn[0]
		s.turn = s.turn[1:]
		close(h.waiting[0])
		h.waiting, h.busy = h.waiting[1:], true
		s.free--
	}
}

// release takes a slot back and puts its holder at the end of the queue.
func (s *FairSlots) release(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.holders[name]
	h.busy = false
	s.free++
	if len(h.waiting) > 0 {
		s.turn = append(s.turn, h)
	} else {
		delete(s.holders, name)
	}
	s.grant()
}

// leave removes a waiting operation from the queue. It reports false if the operation already has its slot.
func (s *FairSlots) leave(name string, granted chan struct{}) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.holders[name]
	if h == nil {
		return false
	}
	i := slices.Index(h.waiting, granted)
	if i < 0 {
		return false
	}
	h.waiting = slices.Delete(h.waiting, i, i+1)
	if len(h.waiting) == 0 && !h.busy {
		s.turn = slices.DeleteFunc(s.turn, func(other *holder) bool { return other == h })
		delete(s.holders, name)
	}
	return true
}
