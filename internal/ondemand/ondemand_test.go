package ondemand

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

func TestMadeOnceHoweverManyAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(2, maxWait, slog.New(slog.DiscardHandler))
		var made, now, most atomic.Int64
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				err := m.Make(t.Context(), string(rune('a'+i%4)), func(context.Context) error {
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
			t.Errorf("made %d times of 4 things, %d at once of 2", made.Load(), most.Load())
		}
		m.Close()
	})
}

// Who asks for what takes long is told to come again, and finds it: the work goes
// on, also when they leave.
func TestSlowThingIsMadeForTheNextWhoAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(1, maxWait, slog.New(slog.DiscardHandler))
		var made atomic.Int64
		slow := func(ctx context.Context) error {
			time.Sleep(3 * maxWait / 2)
			made.Add(1)
			return ctx.Err()
		}
		if err := m.Make(t.Context(), "film", slow); !errors.Is(err, ErrBusy) {
			t.Errorf("at first: %v", err)
		}
		leaves, leave := context.WithCancel(t.Context())
		leave()
		if err := m.Make(leaves, "film", slow); !errors.Is(err, context.Canceled) {
			t.Errorf("who has left: %v", err)
		}
		if err := m.Make(t.Context(), "film", slow); err != nil || made.Load() != 1 {
			t.Errorf("asked again: %v, made %d times", err, made.Load())
		}
		m.Close()
	})
}

func TestCloseEndsWhatIsBeingMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(1, maxWait, slog.New(slog.DiscardHandler))
		forever := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		for _, name := range []string{"runs", "waits"} {
			go func() {
				if err := m.Make(t.Context(), name, forever); !errors.Is(err, ErrBusy) {
					t.Errorf("%s: %v", name, err)
				}
			}()
		}
		synctest.Wait()
		m.Close()
		if err := m.Make(t.Context(), "late", forever); !errors.Is(err, ErrBusy) {
			t.Errorf("after the end: %v", err)
		}
	})
}
