package ratelimit_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cutroom/internal/base/db"
	"cutroom/internal/base/fault"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/work/ratelimit"
)

// refused returns the wait that err names, or 0 when err is nil.
func refused(t *testing.T, err error) time.Duration {
	t.Helper()
	if err == nil {
		return 0
	}
	f := fault.As(err)
	if f == nil || f.Kind != fault.RateLimited || f.Code != "rate_limited" || f.RetryAfter < time.Second {
		t.Fatalf("%v, want the answer of a limit with its wait", err)
	}
	return f.RetryAfter
}

func TestNoSpanOfAMinuteHoldsMore(t *testing.T) {
	limit := ratelimit.Limit{Name: "l", PerMinute: 3}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		take := func() time.Duration { t.Helper(); return refused(t, limit.Take(t.Context(), d, "k")) }
		pass := func(span time.Duration) { // lets time pass for the key, newest first
			t.Helper()
			var times, aged string
			if err := d.QueryRow(t.Context(), `SELECT times FROM request_times WHERE bucket = 'l:k'`).Scan(&times); err != nil {
				t.Fatal(err)
			}
			for ; times != ""; times = times[13:] {
				var ms int64
				if _, err := fmt.Sscan(times[:13], &ms); err != nil {
					t.Fatal(err)
				}
				aged += fmt.Sprint(ms - span.Milliseconds())
			}
			dbtest.Exec(t, d, `UPDATE request_times SET times = $1 WHERE bucket = 'l:k'`, aged)
		}
		near := func(got, want time.Duration) { // a slow machine may lose time between two statements
			t.Helper()
			if got > want || got < want-10*time.Second {
				t.Errorf("wait %v, want %v", got, want)
			}
		}
		if take() != 0 {
			t.Fatal("the first was refused")
		}
		pass(40 * time.Second)
		for range 2 {
			if take() != 0 {
				t.Fatal("three in a minute were not let through")
			}
		}
		near(take(), 20*time.Second)
		near(refused(t, limit.Check(t.Context(), d, "k")), 20*time.Second)
		pass(20 * time.Second)
		// The first is a minute old now; the other two are not.
		if wait := refused(t, limit.Check(t.Context(), d, "k")); wait != 0 {
			t.Errorf("looking says wait %v when one is free", wait)
		}
		if take() != 0 {
			t.Error("refused although only two were in the last minute")
		}
		near(take(), 40*time.Second)
		if refused(t, limit.Take(t.Context(), d, "other")) != 0 || refused(t, ratelimit.Limit{Name: "m", PerMinute: 1}.Take(t.Context(), d, "k")) != 0 {
			t.Error("another key or another limit is not counted apart")
		}
		if wait := refused(t, ratelimit.Limit{Name: "m", PerMinute: 1}.Take(t.Context(), d, "k")); wait < 50*time.Second {
			t.Errorf("a limit of one: wait %v", wait)
		}

		pass(time.Minute)
		if err := ratelimit.Sweep(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		var left int
		if err := d.QueryRow(t.Context(), `SELECT COUNT(*) FROM request_times`).Scan(&left); err != nil || left != 2 {
			t.Errorf("%d keys left after the sweep, want the two of this minute (%v)", left, err)
		}
	})
}

// An event that is taken back leaves its place to another, and only that.
func TestReturnedEventsDoNotCount(t *testing.T) {
	limit := ratelimit.Limit{Name: "l", PerMinute: 3}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		reserve := func() string {
			t.Helper()
			taken, err := limit.Reserve(t.Context(), d, "k")
			if refused(t, err) != 0 {
				t.Fatal("refused")
			}
			return taken
		}
		full := func() {
			t.Helper()
			if refused(t, limit.Take(t.Context(), d, "k")) == 0 {
				t.Fatal("more than three in a minute")
			}
		}
		giveBack := func(taken string) {
			t.Helper()
			if err := limit.Return(t.Context(), d, "k", taken); err != nil {
				t.Fatal(err)
			}
		}
		giveBack(reserve()) // the only one
		first, second, third := reserve(), reserve(), reserve()
		full() // as long as they are under way
		giveBack(first)
		reserve()
		full()
		giveBack(third)
		giveBack(second)
		reserve()
		reserve()
		full()
		giveBack("0000000000000") // swept meanwhile
		full()
	})
}

func TestParallelRequestsAreCountedExactly(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		var through atomic.Int64
		var wg sync.WaitGroup
		for range 60 {
			wg.Go(func() {
				if err := (ratelimit.Limit{Name: "l", PerMinute: 20}).Take(t.Context(), d, "k"); err == nil {
					through.Add(1)
				} else if fault.As(err) == nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if through.Load() != 20 {
			t.Errorf("%d let through, want 20", through.Load())
		}
	})
}
