package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"cutroom/internal/rescue"
)

// PartCoordinator shares the video parts of one render among machines that use the same
// part cache. The machine that renders the job and those that assist claim one part
// after another. It is safe for concurrent use.
type PartCoordinator interface {
	// Announce offers the parts to be made, in the order in which to claim them. The
	// machine that renders the job calls it once, before anything else.
	Announce(ctx context.Context, keys []string) error
	// Next claims a part that nobody has claimed or whose machine was lost. In the same step it ends the
	// caller's claim of the part made, which is now in the cache; "" ends none. It returns "" if there is no
	// part to claim or if ctx has ended.
	Next(ctx context.Context, made string) (key string, err error)
	// GiveUp ends the claim of a part that could not be made.
	GiveUp(ctx context.Context, key string) error
	// Await waits for parts that other machines claimed. It returns the parts whose claims have ended and
	// whether they were made. It returns none if there is a part to claim.
	Await(ctx context.Context, keys []string) (made map[string]bool, err error)
}

// alone is the coordinator of a render that shares no parts.
type alone struct {
	mu   sync.Mutex
	open []string
}

func (a *alone) Announce(_ context.Context, keys []string) error {
	a.open = keys
	return nil
}

func (a *alone) Next(ctx context.Context, _ string) (key string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.open) == 0 || ctx.Err() != nil {
		return "", nil
	}
	key, a.open = a.open[0], a.open[1:]
	return key, nil
}

func (a *alone) GiveUp(context.Context, string) error { return nil }

func (a *alone) Await(ctx context.Context, keys []string) (map[string]bool, error) {
	return nil, cmp.Or(context.Cause(ctx), fmt.Errorf("nobody makes %v", keys))
}

// fetchLanes is how many parts made by other machines are fetched at once.
const fetchLanes = 8

// makeVideo makes the missing parts in their order, together with assisting machines.
func (r *run) makeVideo(ctx context.Context, missing []*videoPart, parallel int) error {
	open := map[string]*videoPart{}
	var keys []string
	for _, p := range missing {
		keys = append(keys, p.Key)
		open[p.Key] = p
	}
	if err := r.job.Coordinator.Announce(ctx, keys); err != nil {
		return fmt.Errorf("announce parts: %w", err)
	}
	for claimable := true; len(open) > 0; {
		var ended map[string]bool
		var err error
		if claimable {
			_, err = r.claimParts(ctx, open, parallel, "")
			claimable = false
		} else if ended, err = r.job.Coordinator.Await(ctx, slices.Collect(maps.Keys(open))); err == nil {
			err = r.collectParts(ctx, open, parallel, ended)
			claimable = len(ended) == 0
		}
		if err != nil {
			return fmt.Errorf("make parts: %w", err)
		}
		maps.DeleteFunc(open, func(key string, p *videoPart) bool {
			_, over := ended[key]
			_, here := r.decoded[p]
			return over || here
		})
	}
	return nil
}

// claimParts makes parts, up to parallel at once, until the coordinator has none left. If
// first is not "", it is already claimed. It returns how many parts it made.
func (r *run) claimParts(ctx context.Context, parts map[string]*videoPart, parallel int, first string) (int, error) {
	var made atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range parallel {
		key := first
		first = ""
		group.Go(rescue.Func(func() error {
			n, err := r.claimOneByOne(ctx, parts, key)
			made.Add(n)
			if err != nil {
				return fmt.Errorf("claim part: %w", err)
			}
			return nil
		}))
	}
	err := group.Wait()
	return int(made.Load()), err
}

// claimOneByOne runs one lane of claimParts.
func (r *run) claimOneByOne(ctx context.Context, parts map[string]*videoPart, key string) (made int64, err error) {
	c := r.job.Coordinator
	if key == "" {
		key, err = c.Next(ctx, "")
	}
	for key != "" && err == nil {
		p := parts[key]
		if p == nil { // announced by another release
			return made, c.GiveUp(ctx, key)
		}
		if err := r.makePart(ctx, p); err != nil {
			if ctx.Err() == nil { // otherwise another machine may succeed
				err = errors.Join(err, c.GiveUp(ctx, key))
			}
			return made, err
		}
		made++
		if !r.madeWhole(p) {
			err, key = c.GiveUp(context.WithoutCancel(ctx), key), ""
		}
		if err == nil {
			key, err = c.Next(ctx, key)
		}
	}
	return made, err
}

// madeWhole reports whether a part made here is complete, and therefore in the cache.
func (r *run) madeWhole(p *videoPart) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return complete(r.decoded[p])
}

// collectParts fetches the parts that other machines made. It makes those that they could
// not make or that the cache has lost. Making a part twice only costs time: both are
// equal.
func (r *run) collectParts(ctx context.Context, parts map[string]*videoPart, parallel int, ended map[string]bool) error {
	var mu sync.Mutex
	var fetches, repairs []step
	for key, made := range ended {
		p := parts[key]
		fetches = append(fetches, func(ctx context.Context) error {
			if made && r.fetchPart(ctx, p) {
				p.task.finish()
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			repairs = append(repairs, func(ctx context.Context) error { return r.makePart(ctx, p) })
			return nil
		})
	}
	if err := runSteps(ctx, fetches, fetchLanes); err != nil {
		return err
	}
	return runSteps(ctx, repairs, parallel)
}

// Assist makes parts of a job that another machine renders, starting with the claimed
// one, until none is left or ctx ends. It writes only to the part cache. Its errors do
// not reach the client: the machine that renders the job meets the same error and reports
// it.
func (e *Engine) Assist(ctx context.Context, job Job, claimed string) (made int, err error) {
	r := e.newRun(job)
	defer r.close()
	if err := r.open(ctx); err != nil {
		return 0, err
	}
	parallel := r.plan.Parallel
	if t, ok := r.loadThreadPlan(ctx); ok {
		t.apply(r.plan.Parts)
		parallel = t.Parallel
	}
	parts := map[string]*videoPart{}
	for _, p := range r.plan.Parts {
		parts[p.Key] = p
	}
	return r.claimParts(ctx, parts, parallel, claimed)
}
