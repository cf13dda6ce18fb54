package derived

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const maxWait = 8 * time.Second

func newMaker(atOnce int) *Maker {
	return New(Options{AtOnce: atOnce, PerHolder: max(1, atOnce-1), MaxWait: maxWait, Log: slog.New(slog.DiscardHandler)})
}

func wait(ctx context.Context, m *Maker, holder, key string, work func(context.Context) error) error {
	_, err := Do(ctx, m, holder, key, func(ctx context.Context) (bool, error) { return true, work(ctx) })
	return err
}

func TestObjectsAreMadeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMaker(2)
		var made, now, most atomic.Int64
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				key := string(rune('a' + i%4))
				got, err := Do(t.Context(), m, key, key, func(context.Context) (string, error) {
					for n, seen := now.Add(1), most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
					}
					time.Sleep(time.Second)
					now.Add(-1)
					made.Add(1)
					return "made " + key, nil
				})
				if err != nil || got != "made "+key {
					t.Errorf("%s: %q, %v", key, got, err)
				}
			})
		}
		all.Wait()
		if made.Load() != 4 || most.Load() != 2 {
			t.Errorf("made %d times instead of 4, %d at once instead of 2", made.Load(), most.Load())
		}
		m.Close()
	})
}

// A request that waits too long gets ErrBusy, and the work continues for the next one, even if all clients leave.
func TestNextRequestFindsSlowObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMaker(1)
		var made atomic.Int64
		slow := func(ctx context.Context) error {
			time.Sleep(3 * maxWait / 2)
			made.Add(1)
			return ctx.Err()
		}
		if err := wait(t.Context(), m, "", "film", slow); !errors.Is(err, ErrBusy) {
			t.Errorf("first request: %v", err)
		}
		leaves, leave := context.WithCancel(t.Context())
		leave()
		if err := wait(leaves, m, "", "film", slow); !errors.Is(err, context.Canceled) {
			t.Errorf("client that left: %v", err)
		}
		if err := wait(t.Context(), m, "", "film", slow); err != nil || made.Load() != 1 {
			t.Errorf("second request: %v, made %d times", err, made.Load())
		}
		m.Close()
	})
}

// A holder with much work keeps no other holder waiting, and Close ends it all.
func TestHoldersShareTheMakerUntilItCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMaker(3)
		var running atomic.Int64
		forever := func(ctx context.Context) error { running.Add(1); <-ctx.Done(); return ctx.Err() }
		var greedy sync.WaitGroup
		for i := range 110 {
			greedy.Go(func() {
				if err := wait(t.Context(), m, "greedy", fmt.Sprint(i), forever); !errors.Is(err, ErrBusy) {
					t.Errorf("%d: %v", i, err)
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		err := wait(t.Context(), m, "other", "x", func(context.Context) error { return nil })
		if err != nil || time.Since(began) > 0 || running.Load() != 2 {
			t.Errorf("another holder: %v after %v, beside %d pieces of work of the first", err, time.Since(began), running.Load())
		}
		m.Close()
		greedy.Wait() // the end of the test would end their context
		if err := wait(t.Context(), m, "other", "late", forever); !errors.Is(err, ErrBusy) {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestSpaceIsReserved(t *testing.T) {
	free := int64(100)
	s := NewSpace(func(context.Context) (int64, error) { return free, nil })
	release, err := s.Reserve(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Reserve(t.Context(), 60); !errors.Is(err, ErrBusy) {
		t.Errorf("more than is free: %v", err)
	}
	release()
	release() // a second call does nothing
	if _, err := s.Reserve(t.Context(), 100); err != nil {
		t.Error(err)
	}
	if _, err := s.Reserve(t.Context(), 1); !errors.Is(err, ErrBusy) {
		t.Errorf("one byte too many: %v", err)
	}
}
