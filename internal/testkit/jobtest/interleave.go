package jobtest

import (
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// Interleave performs 10 to 30 random operations on random jobs, some concurrently and some in sequence. do performs
// one operation on one job, with a random n from 0 to 29, and reports whether it deleted the job. Interleave returns
// how often each job was deleted.
func Interleave(t *testing.T, rt *rapid.T, jobs, operations []string,
	do func(operation, job string, n int) (deleted bool, err error)) map[string]int {
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
