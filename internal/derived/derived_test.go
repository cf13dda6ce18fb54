package derived

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const maxWait = 8 * time.Second

func TestObjectsAreMadeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(2, maxWait, slog.New(slog.DiscardHandler))
		var made, now, most atomic.Int64
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				err := m.wait(t.Context(), string(rune('a'+i%4)), func(context.Context) error {
					for n, seen := now.Add(1), most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
					}
					time.Sleep(time.Second)
					now.Add(-1)
					made.Add(1)
					return nil
				})
				if err != nil {
					t.Error(err)
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

// A request that waits too long gets ErrBusy, and the work continues for the next one, even if all
// clients leave.
func TestNextRequestFindsSlowObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(1, maxWait, slog.New(slog.DiscardHandler))
		var made atomic.Int64
		slow := func(ctx context.Context) error {
			time.Sleep(3 * maxWait / 2)
			made.Add(1)
			return ctx.Err()
		}
		if err := m.wait(t.Context(), "film", slow); !errors.Is(err, ErrBusy) {
			t.Errorf("first request: %v", err)
		}
		leaves, leave := context.WithCancel(t.Context())
		leave()
		if err := m.wait(leaves, "film", slow); !errors.Is(err, context.Canceled) {
			t.Errorf("client that left: %v", err)
		}
		if err := m.wait(t.Context(), "film", slow); err != nil || made.Load() != 1 {
			t.Errorf("second request: %v, made %d times", err, made.Load())
		}
		m.Close()
	})
}

func TestCloseEndsRunningWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(1, maxWait, slog.New(slog.DiscardHandler))
		forever := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		for _, name := range []string{"runs", "waits"} {
			go func() {
				if err := m.wait(t.Context(), name, forever); !errors.Is(err, ErrBusy) {
					t.Errorf("%s: %v", name, err)
				}
			}()
		}
		synctest.Wait()
		m.Close()
		if err := m.wait(t.Context(), "late", forever); !errors.Is(err, ErrBusy) {
			t.Errorf("after Close: %v", err)
		}
	})
}
