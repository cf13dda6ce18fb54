// Slots limit what runs at once in this process: Slots for renders, and FairSlots, whose holders take turns, for the
// work of requests.

package media

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Slots limits how many renders run at once in the process. It is safe for concurrent use.
type Slots struct{ taken chan struct{} }

// NewSlots returns a pool of n slots; n below 1 counts as 1.
func NewSlots(n int) *Slots { return &Slots{make(chan struct{}, max(n, 1))} }

// TryAcquire takes a slot only if one is free now. The returned release may be called more than once.
func (s *Slots) TryAcquire() (release func(), ok bool) {
	select {
	case s.taken <- struct{}{}:
		return sync.OnceFunc(func() { <-s.taken }), true
	default:
		return nil, false
	}
}

// Size returns the number of slots.
func (s *Slots) Size() int { return cap(s.taken) }

// InUse returns the number of slots in use.
func (s *Slots) InUse() int { return len(s.taken) }

// FairSlots limits how many operations run at once in the process and shares the slots among holders. Waiting
// holders take turns, regardless of how much work each of them has waiting. It is safe for concurrent use.
type FairSlots struct {
	FairLimits

	mu      sync.Mutex
	busy    int // slots in use
	busyOld int // slots in use by holders that had used one recently
	holders map[string]*holder
	turn    []*holder // holders that wait and have less than their share, next first
}

// FairLimits configures FairSlots. All but Reserved and Recent are at least 1.
type FairLimits struct {
	Slots     int
	PerHolder int // slots that one holder may have at once
	// Reserved slots are kept for holders that used none within Recent, so that holders that always have work cannot
	// make everybody else wait.
	Reserved int
	Recent   time.Duration
}

// holder is one party that shares FairSlots. Its waiting work is in order of arrival.
type holder struct {
	busy    int
	used    time.Time // when it last returned a slot
	waiting []*waiter
}

// waiter is an operation that waits for a slot.
type waiter struct {
	granted chan struct{}
	old     bool // the holder had used a slot recently; valid once granted
}

// NewFairSlots returns a pool of slots.
func NewFairSlots(l FairLimits) *FairSlots {
	l.Slots, l.PerHolder = max(l.Slots, 1), max(l.PerHolder, 1)
	l.Reserved = min(l.Reserved, l.Slots-1)
	return &FairSlots{FairLimits: l, holders: map[string]*holder{}}
}

// Acquire waits for a slot of the named holder. The returned release returns the slot and may be called more than
// once. If ctx ends first, the error is ctx's cause and release is nil.
func (s *FairSlots) Acquire(ctx context.Context, name string) (release func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	w := &waiter{granted: make(chan struct{})}
	s.mu.Lock()
	s.forget()
	h := s.holders[name]
	if h == nil {
		h = &holder{}
		s.holders[name] = h
	}
	h.waiting = append(h.waiting, w)
	s.line(h)
	s.grant()
	s.mu.Unlock()
	release = sync.OnceFunc(func() { s.release(h, w) })
	select {
	case <-w.granted:
		return release, nil
	case <-ctx.Done():
		if !s.leave(h, w) {
			release() // it was granted at the same moment
		}
		return nil, context.Cause(ctx)
	}
}

// AcquireWithin is Acquire with a limit on the wait. After that the error is busy.
func (s *FairSlots) AcquireWithin(ctx context.Context, name string, wait time.Duration, busy error) (release func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, busy)
	defer cancel()
	return s.Acquire(ctx, name)
}

// line puts a holder at the end of the queue if it may have another slot and is not queued yet.
func (s *FairSlots) line(h *holder) {
	if len(h.waiting) > 0 && h.busy < s.PerHolder && !slices.Contains(s.turn, h) {
		s.turn = append(s.turn, h)
	}
}

// grant gives free slots to the holders whose turn it is.
func (s *FairSlots) grant() {
	for i := 0; i < len(s.turn) && s.busy < s.Slots; {
		h := s.turn[i]
		old := s.Reserved > 0 && (h.busy > 0 || s.recent(h))
		if old && s.busyOld >= s.Slots-s.Reserved {
			i++
			continue
		}
		w := h.waiting[0]
		w.old = old
		h.waiting = h.waiting[1:]
		h.busy++
		s.busy++
		if old {
			s.busyOld++
		}
		close(w.granted)
		s.turn = slices.Delete(s.turn, i, i+1)
		s.line(h)
	}
}

func (s *FairSlots) recent(h *holder) bool { return !h.used.IsZero() && time.Since(h.used) < s.Recent }

// release takes a slot back and puts its holder at the end of the queue.
func (s *FairSlots) release(h *holder, w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.busy--
	s.busy--
	if w.old {
		s.busyOld--
	}
	h.used = time.Now()
	s.line(h)
	s.grant()
}

// leave removes a waiting operation from the queue. It reports false if the operation already has its slot.
func (s *FairSlots) leave(h *holder, w *waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(h.waiting, w)
	if i < 0 {
		return false
	}
	h.waiting = slices.Delete(h.waiting, i, i+1)
	if len(h.waiting) == 0 {
		s.turn = slices.DeleteFunc(s.turn, func(other *holder) bool { return other == h })
	}
	return true
}

// forget removes the holders that need not be remembered.
func (s *FairSlots) forget() {
	maps.DeleteFunc(s.holders, func(_ string, h *holder) bool {
		return h.busy == 0 && len(h.waiting) == 0 && !s.recent(h)
	})
}
