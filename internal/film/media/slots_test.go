package media_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cutroom/internal/film/media"
)

func TestSlots(t *testing.T) {
	s := media.NewSlots(0) // counts as one
	release, ok := s.TryAcquire()
	if _, second := s.TryAcquire(); !ok || second || s.InUse() != 1 || s.Size() != 1 {
		t.Errorf("in use %d of %d; acquired: %v, %v", s.InUse(), s.Size(), ok, second)
	}
	release()
	release() // a second call does nothing
	if s.InUse() != 0 {
		t.Errorf("%d slots are in use at the end", s.InUse())
	}
}

// TestFairSlotsTakeTurns queues much work of one holder before any work of the others.
func TestFairSlotsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := media.NewFairSlots(media.FairLimits{Slots: 2})
		var mu sync.Mutex
		var order []string
		next := make(chan struct{})
		work := func(ctx context.Context, name string) {
			release, err := s.Acquire(ctx, name)
			if err != nil {
				return
			}
			mu.Lock()
			order = append(order, name)
			mu.Unlock()
			<-next
			release()
			release() // a second call does nothing
		}
		gone, leave := context.WithCancel(t.Context())
		for _, name := range []string{"a", "a", "a", "b", "c", "b", "gone"} {
			ctx := t.Context()
			if name == "gone" {
				ctx = gone
			}
			go work(ctx, name)
			synctest.Wait()
		}
		if !slices.Equal(order, []string{"a", "b"}) {
			t.Errorf("%q hold the two slots, want one each of a and b", order)
		}
		leave()
		synctest.Wait()
		for range 6 {
			next <- struct{}{}
			synctest.Wait()
		}
		// a and b end in no fixed order. c was waiting when they did, and comes before their next work.
		if len(order) != 6 || order[2] != "c" || order[5] != "a" {
			t.Errorf("the order was %q", order)
		}
	})
}

// TestReservedSlots fills the unreserved slots with holders that always have work. A holder that used no slot within
// the last minute gets a reserved one at once.
func TestReservedSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := media.NewFairSlots(media.FairLimits{Slots: 4, PerHolder: 2, Reserved: 2, Recent: time.Minute})
		acquire := func(name string) func() {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			release, _ := s.Acquire(ctx, name)
			return release
		}
		for _, name := range []string{"a", "b", "c"} {
			acquire(name)()
		}
		a, b := acquire("a"), acquire("b")
		if a == nil || b == nil || acquire("c") != nil || acquire("a") != nil {
			t.Error("holders of the last minute do not get half of the slots")
		}
		fresh := acquire("fresh")
		if fresh == nil {
			t.Error("a reserved slot was refused")
		}
		if acquire("fresh") != nil {
			t.Error("the second slot of a new holder is a reserved one")
		}
		time.Sleep(time.Minute)
		if c := acquire("c"); c == nil {
			t.Error("a holder of more than a minute ago was refused")
		}
		a()
		if acquire("a") == nil {
			t.Error("the slot of a holder is not free again")
		}
	})
}
