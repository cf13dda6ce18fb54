// The loop that makes the parts of one render together with other machines: claim, make, fetch what others made, and in
// the end make what is still missing.

package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"cutroom/internal/base/rescue"
)

// Part is a video part to be made.
type Part struct {
	Key     string
	Threads int // of its encoder; x264's output depends on them
}

// PartCoordinator shares the video parts of one render among machines that use the same part cache: the one that
// renders the job and those that assist. It remembers the parts, so that a render which continues after a crash makes
// the same ones. It is safe for concurrent use.
type PartCoordinator interface {
	// Announce offers the parts to be made, in the order in which to claim them. The machine that renders the job calls
	// it once, before anything else. A part that an earlier attempt announced keeps its threads, so Announce returns
	// the parts with the threads to use.
	Announce(ctx context.Context, parts []Part) ([]Part, error)
	// Next claims a part that nobody has claimed or whose machine was lost. Its key is "" if there is none.
	Next(ctx context.Context) (Part, error)
	// End ends the claim of a part, even if ctx has ended. made means that the part is in the cache.
	End(ctx context.Context, key string, made bool) error
	// Await waits for parts that other machines claimed. It returns the parts whose claims have ended and whether they
	// were made. It returns none if there is a part to claim.
	Await(ctx context.Context, keys []string) (made map[string]bool, err error)
}

// PartLoop makes the parts of one render, together with other machines.
type PartLoop struct {
	Coordinator PartCoordinator // nil makes all parts here
	// Parallel returns how many parts to make here at once if the encoder of one of them has that many threads.
	Parallel func(threads int) int
	// Make makes a claimed part and puts it into the cache. It reports false for a part of a damaged source, which
	// the cache does not keep.
	Make func(ctx context.Context, part Part) (cached bool, err error)
	// Fetch fetches a part from the cache and reports whether it was there.
	Fetch func(ctx context.Context, key string) bool
}

// fetchLanes is how many parts made by other machines are fetched at once.
const fetchLanes = 8

// All makes or fetches all parts of a render. It returns when all are here.
func (l PartLoop) All(ctx context.Context, parts []Part) (err error) {
	if l.Coordinator != nil {
		if parts, err = l.Coordinator.Announce(ctx, parts); err != nil {
			return fmt.Errorf("announce parts: %w", err)
		}
	}
	fewest := math.MaxInt
	missing := map[string]Part{}
	for _, part := range parts {
		missing[part.Key] = part
		fewest = min(fewest, part.Threads)
	}
	parallel := l.Parallel(fewest)
	if l.Coordinator == nil {
		return l.make(ctx, parallel, parts)
	}
	for claimable := true; len(missing) > 0; {
		var made []string
		if claimable {
			made, err = l.claim(ctx, parallel, Part{})
			claimable = false
		} else {
			made, err = l.collect(ctx, parallel, missing)
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

// Claim makes parts until the coordinator has none left, and returns their keys. The first is already claimed.
func (l PartLoop) Claim(ctx context.Context, first Part) (made []string, err error) {
	return l.claim(ctx, l.Parallel(first.Threads), first)
}

// claim is Claim with the number of parts to make at once. If the key of first is "", no part is claimed yet.
func (l PartLoop) claim(ctx context.Context, parallel int, first Part) (made []string, err error) {
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	for range parallel {
		part := first
		first = Part{}
		group.Go(rescue.Func(func() (err error) {
			for ; ctx.Err() == nil; part = (Part{}) {
				if part.Key == "" {
					if part, err = l.Coordinator.Next(ctx); part.Key == "" || err != nil {
						return err
					}
				}
				cached, err := l.Make(ctx, part)
				if err != nil && ctx.Err() != nil { // another machine may succeed
					return err
				}
				if err := errors.Join(err, l.Coordinator.End(ctx, part.Key, cached && err == nil)); err != nil {
					return err
				}
				mu.Lock()
				made = append(made, part.Key)
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
// the others could not make or that the cache has lost. Making a part twice only costs time: both copies are identical.
func (l PartLoop) collect(ctx context.Context, parallel int, missing map[string]Part) ([]string, error) {
	ended, err := l.Coordinator.Await(ctx, slices.Collect(maps.Keys(missing)))
	if err != nil {
		return nil, err
	}
	keys := slices.Collect(maps.Keys(ended))
	var mu sync.Mutex
	var lost []Part
	err = each(ctx, fetchLanes, keys, func(ctx context.Context, key string) error {
		if !ended[key] || !l.Fetch(ctx, key) {
			mu.Lock()
			defer mu.Unlock()
			lost = append(lost, missing[key])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return keys, l.make(ctx, parallel, lost)
}

// make makes parts that need not be claimed, in their order.
func (l PartLoop) make(ctx context.Context, parallel int, parts []Part) error {
	return each(ctx, parallel, parts, func(ctx context.Context, part Part) error {
		_, err := l.Make(ctx, part)
		return err
	})
}

// partLoop returns the loop over the parts of the plan.
func (r *run) partLoop() PartLoop {
	parts := map[string]*videoPart{}
	for _, p := range r.plan.Parts {
		parts[p.Key] = p
	}
	return PartLoop{
		Coordinator: r.job.Coordinator,
		Parallel:    func(threads int) int { return r.machine().atOnce(r.plan, threads) },
		Make: func(ctx context.Context, part Part) (bool, error) {
			v := parts[part.Key]
			if v == nil { // announced by a machine with another plan
				return false, fmt.Errorf("no part %s in the plan", part.Key)
			}
			v.threads = part.Threads
			return r.makePart(ctx, v)
		},
		Fetch: func(ctx context.Context, key string) bool { return r.fetchPart(ctx, parts[key]) },
	}
}

// Assist makes parts of a job that another machine renders, starting with the claimed one, until none is left or ctx
// ends. Its errors do not reach the client: the machine that renders the job meets the same ones.
func (e *Engine) Assist(ctx context.Context, job Job, claimed Part) (made int, err error) {
	r := e.newRun(job)
	defer r.close()
	if err := r.open(ctx); err != nil {
		return 0, err
	}
	parts, err := r.partLoop().Claim(ctx, claimed)
	return len(parts), err
}
