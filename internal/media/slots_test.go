package media_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cutroom/internal/media"
)

func TestSlotsServeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := media.NewSlots(0) // counts as one
		release, ok := s.TryAcquire()
		if !ok {
			t.Fatal("no slot")
		}
		var order []int
		for i := range 3 {
			go func() {
				release, err := s.Acquire(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i) // the slot is the lock
				release()
			}()
			synctest.Wait() // i is queued before i+1 arrives
		}
		if _, ok := s.TryAcquire(); ok || s.InUse() != 1 || s.Size() != 1 {
			t.Errorf("in use %d of %d, and one was free: %v", s.InUse(), s.Size(), ok)
		}
		release()
		release() // a second time does nothing
		synctest.Wait()
		if len(order) != 3 || order[0] != 0 || order[1] != 1 || order[2] != 2 || s.InUse() != 0 {
			t.Errorf("served %v, in use %d at the end", order, s.InUse())
		}
	})
}

func TestSlotsWaitEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := media.NewSlots(1)
		release, _ := s.TryAcquire()
		ctx, cancel := context.WithCancelCause(t.Context())
		deleted := errors.New("the job was deleted")
		result := make(chan error, 1)
		go func() {
			_, err := s.Acquire(ctx)
			result <- err
		}()
		synctest.Wait()
		cancel(deleted)
		if err := <-result; !errors.Is(err, deleted) {
			t.Errorf("%v, want the cause", err)
		}
		release()
		if _, err := s.Acquire(ctx); !errors.Is(err, deleted) || s.InUse() != 0 {
			t.Errorf("a slot for one who is gone: %v, %d in use", err, s.InUse())
		}
		if again, err := s.Acquire(t.Context()); err != nil {
			t.Error(err)
		} else {
			again()
		}
	})
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
		// a and b end in no fixed order. c was waiting when they did, and comes before
		// their next work.
		if len(order) != 6 || order[2] != "c" || order[5] != "a" {
			t.Errorf("the order was %q", order)
		}
	})
}

// TestReservedSlots fills the unreserved slots with holders that always have work. A holder that used
// no slot within the last minute gets a reserved one at once.
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
