package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"cutroom/internal/rescue"
)

// PartCoordinator shares the video parts of one render among machines that use the same part cache: the one that
// renders the job and those that assist. It is safe for concurrent use.
type PartCoordinator interface {
	// Announce offers the parts to be made, in the order in which to claim them. The
	// machine that renders the job calls it once, before anything else.
	Announce(ctx context.Context, keys []string) error
	// Next claims a part that nobody has claimed or whose machine was lost. It returns "" if there is none.
	Next(ctx context.Context) (key string, err error)
	// End ends the claim of a part, also if ctx has ended. Made says that the part is in the cache.
	End(ctx context.Context, key string, made bool) error
	// Await waits for parts that other machines claimed. It returns the parts whose claims have ended and
	// whether they were made. It returns none if there is a part to claim.
	Await(ctx context.Context, keys []string) (made map[string]bool, err error)
}

// PartLoop makes the parts of one render, together with other machines.
type PartLoop struct {
	Coordinator PartCoordinator // nil makes all parts here
	Parallel    int             // parts made here at once
	// Make makes a claimed part and puts it into the cache. It reports false for a part of a damaged source, which
	// the cache does not keep.
	Make func(ctx context.Context, key string) (cached bool, err error)
	// Fetch fetches a part from the cache and reports whether it was there.
	Fetch func(ctx context.Context, key string) bool
}

// fetchLanes is how many parts made by other machines are fetched at once.
const fetchLanes = 8

// All makes or fetches all parts of a render. It returns when all are here.
func (l PartLoop) All(ctx context.Context, keys []string) error {
	if l.Coordinator == nil {
		return l.make(ctx, keys)
	}
	if err := l.Coordinator.Announce(ctx, keys); err != nil {
		return fmt.Errorf("announce parts: %w", err)
	}
	missing := map[string]bool{}
	for _, key := range keys {
		missing[key] = true
	}
	for claimable := true; len(missing) > 0; {
		var made []string
		var err error
		if claimable {
			made, err = l.Claim(ctx, "")
			claimable = false
		} else {
			made, err = l.collect(ctx, slices.Collect(maps.Keys(missing)))
			claimable = len(made) == 0
		}
		if err != nil {
			return fmt.Errorf("make parts: %w", err)
		}
		for _, key := range made {
			delete(missing, key)
		}
	}
	return nil
}

// Claim makes parts until the coordinator has none left, and returns them. If first is not "", it is already claimed.
func (l PartLoop) Claim(ctx context.Context, first string) (made []string, err error) {
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	for range l.Parallel {
		key := first
		first = ""
		group.Go(rescue.Func(func() (err error) {
			for ; ctx.Err() == nil; key = "" {
				if key == "" {
					if key, err = l.Coordinator.Next(ctx); key == "" || err != nil {
						return err
					}
				}
				cached, err := l.Make(ctx, key)
				if err != nil && ctx.Err() != nil { // another machine may succeed
					return err
				}
				if err := errors.Join(err, l.Coordinator.End(ctx, key, cached && err == nil)); err != nil {
					return err
				}
				mu.Lock()
				made = append(made, key)
				mu.Unlock()
			}
			return nil
		}))
	}
	if err := group.Wait(); err != nil {
		return made, fmt.Errorf("claim part: %w", err)
	}
	return made, nil
}

// collect waits for parts that other machines claimed, and fetches those whose claims have ended. It makes those that
// the others could not make or that the cache has lost. Making a part twice only costs time: both are equal.
func (l PartLoop) collect(ctx context.Context, keys []string) ([]string, error) {
	ended, err := l.Coordinator.Await(ctx, keys)
	if err != nil {
		return nil, err
	}
	keys = slices.Collect(maps.Keys(ended))
	var mu sync.Mutex
	var lost []string
	err = each(ctx, fetchLanes, keys, func(ctx context.Context, key string) error {
		if !ended[key] || !l.Fetch(ctx, key) {
			mu.Lock()
			defer mu.Unlock()
			lost = append(lost, key)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return keys, l.make(ctx, lost)
}

// make makes parts that need not be claimed, in their order.
func (l PartLoop) make(ctx context.Context, keys []string) error {
	return each(ctx, l.Parallel, keys, func(ctx context.Context, key string) error {
		_, err := l.Make(ctx, key)
		return err
	})
}

// partLoop returns the loop over the parts of the plan.
func (r *run) partLoop(parallel int) PartLoop {
	parts := map[string]*videoPart{}
	for _, p := range r.plan.Parts {
		parts[p.Key] = p
	}
	return PartLoop{
		Coordinator: r.job.Coordinator, Parallel: parallel,
		Make: func(ctx context.Context, key string) (bool, error) {
			if parts[key] == nil { // announced by a machine with another plan
				return false, fmt.Errorf("no part %s in the plan", key)
			}
			return r.makePart(ctx, parts[key])
		},
		Fetch: func(ctx context.Context, key string) bool { return r.fetchPart(ctx, parts[key]) },
	}
}

// Assist makes parts of a job that another machine renders, starting with the claimed one, until none is left or ctx
// ends. Its errors do not reach the client: the machine that renders the job meets the same ones.
func (e *Engine) Assist(ctx context.Context, job Job, claimed string) (made int, err error) {
	r := e.newRun(job)
	defer r.close()
	if err := r.open(ctx); err != nil {
		return 0, err
	}
	parallel := r.plan.Parallel
	var threads threadPlan
	if r.fetchJSON(ctx, r.threadPlanKey(), &threads) {
		threads.apply(r.plan.Parts)
		parallel = threads.Parallel
	}
	parts, err := r.partLoop(parallel).Claim(ctx, claimed)
	return len(parts), err
}
