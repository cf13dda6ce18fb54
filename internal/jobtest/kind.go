package jobtest

import (
	"context"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"cutroom/internal/db"
	"cutroom/internal/dbtest"
)

// Kind is a kind of job.
type Kind struct {
	Enqueue func(h *Harness)
	// Claim claims a job for a new replica on the connections of d.
	Claim func(h *Harness, d *db.DB) (ok bool, err error)
	Sweep func(h *Harness) error
}

// TestLostClaims checks claims that commit but whose response is lost. They cost no attempt, because
// no worker has begun.
func (k Kind) TestLostClaims(t *testing.T) {
	t.Parallel()
	direct, lossy := dbtest.Lossy(t, func(d *db.DB) bool {
		var n int
		err := d.QueryRow(context.WithoutCancel(t.Context()), `SELECT COUNT(*) FROM jobs WHERE lease_until > now_ms()`).Scan(&n)
		return err == nil && n > 0
	})
	h := New(t, direct)
	k.Enqueue(h)
	const attempts = 3
	for fence := range attempts + 1 {
		if ok, err := k.Claim(h, lossy); ok || err == nil {
			t.Fatalf("the response was not lost: %v, %v", ok, err)
		}
		if h.Number(`SELECT COUNT(*) FROM jobs WHERE fence > $1 AND lease_owner IS NOT NULL`, fence) != 1 {
			t.Fatal("the claim was not committed")
		}
		h.Exec(`UPDATE jobs SET lease_until = 0`)
		if err := k.Sweep(h); err != nil {
			t.Fatal(err)
		}
	}
	if ok, err := k.Claim(h, direct); err != nil || !ok || h.Number(`SELECT attempts FROM jobs`) != 0 {
		t.Errorf("claimed %v, %v, after %d attempts", ok, err, h.Number(`SELECT attempts FROM jobs`))
	}
}

// Interleave performs 10 to 30 random operations on random jobs, some concurrently and some in
// sequence. do performs one operation on one job, with a random n from 0 to 29, and reports whether
// it deleted the job. Interleave returns how often each job was deleted.
func Interleave(t *testing.T, rt *rapid.T, jobs, operations []string, do func(operation, job string, n int) (deleted bool, err error)) map[string]int {
	var mu sync.Mutex
	deleted := map[string]int{}
	var all sync.WaitGroup
	for _, operation := range rapid.SliceOfN(rapid.SampledFrom(operations), 10, 30).Draw(rt, "operations") {
		job, n := rapid.SampledFrom(jobs).Draw(rt, "job"), rapid.IntRange(0, 29).Draw(rt, "n")
		all.Go(func() {
			gone, err := do(operation, job, n)
			if err != nil {
				t.Errorf("%s: %v", operation, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if gone {
				deleted[job]++
			}
		})
		if n%2 == 0 {
			all.Wait()
		}
	}
	all.Wait()
	return deleted
}
