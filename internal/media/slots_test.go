package media_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"cutroom/internal/media"
)

func TestSlotsServeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := media.NewSlots(1)
		release, err := s.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
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
			synctest.Wait() // i stands in line before i+1 comes
		}
		if s.InUse() != 1 || s.Waiting() != 3 || s.Size() != 1 {
			t.Errorf("in use %d, waiting %d, size %d", s.InUse(), s.Waiting(), s.Size())
		}
		if _, ok := s.TryAcquire(); ok {
			t.Error("a slot was free")
		}
		release()
		release() // a second time does nothing
		synctest.Wait()
		if len(order) != 3 || order[0] != 0 || order[1] != 1 || order[2] != 2 {
			t.Errorf("served %v", order)
		}
		if s.InUse() != 0 || s.Waiting() != 0 {
			t.Errorf("in use %d, waiting %d at the end", s.InUse(), s.Waiting())
		}
	})
}

func TestSlotsWaitEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := media.NewSlots(0) // counts as one
		release, ok := s.TryAcquire()
		if !ok {
			t.Fatal("no slot")
		}
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
		if s.Waiting() != 0 {
			t.Errorf("%d still waiting", s.Waiting())
		}
		release()
		if again, err := s.Acquire(t.Context()); err != nil {
			t.Error(err)
		} else {
			again()
		}
	})
}

// TestSlotsLoseNone races cancellation with hand-over: whoever wins, the slot
// comes back.
func TestSlotsLoseNone(t *testing.T) {
	s := media.NewSlots(2)
	done := make(chan struct{})
	for range 8 {
		go func() {
			defer func() { done <- struct{}{} }()
			for range 500 {
				ctx, cancel := context.WithCancel(t.Context())
				go cancel()
				if release, err := s.Acquire(ctx); err == nil {
					release()
				}
				cancel()
			}
		}()
	}
	for range 8 {
		<-done
	}
	if s.InUse() != 0 || s.Waiting() != 0 {
		t.Errorf("in use %d, waiting %d", s.InUse(), s.Waiting())
	}
}
