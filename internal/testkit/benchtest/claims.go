package benchtest

import (
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Claims is the result of MeasureClaims.
type Claims struct {
	Claim, End []time.Duration // of each cycle, sorted
	PerSecond  float64         // cycles
}

// MeasureClaims runs cycles in parallel workers until the limit has passed. A cycle claims a job and ends it, and
// returns how long each took.
func MeasureClaims(workers int, limit time.Duration, cycle func(worker int) (claim, end time.Duration, err error)) (c Claims, err error) {
	var mu sync.Mutex
	var all errgroup.Group
	began := time.Now()
	for worker := range workers {
		all.Go(func() error {
			for time.Since(began) < limit {
				claim, end, err := cycle(worker)
				if err != nil {
					return err
				}
				mu.Lock()
				c.Claim, c.End = append(c.Claim, claim), append(c.End, end)
				mu.Unlock()
			}
			return nil
		})
	}
	err = all.Wait()
	c.PerSecond = float64(len(c.Claim)) / time.Since(began).Seconds()
	slices.Sort(c.Claim)
	slices.Sort(c.End)
	return c, err
}
