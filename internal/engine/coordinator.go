package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// PartCoordinator shares the video parts of one render among machines that use the same
// part cache. Whoever renders the job and whoever assists take one part after the
// other. It is safe for concurrent use.
type PartCoordinator interface {
	// Announce opens the parts that have to be made to everybody, who take them in
	// this order. Only whoever renders the job calls it, before anything else.
	Announce(ctx context.Context, keys []string) error
	// Next ends the caller's claim of a part that is in the cache now, unless made is
	// "", and in the same step claims one that nobody has, or whose maker was lost. It
	// returns "" where there is none, and when ctx is over.
	Next(ctx context.Context, made string) (key string, err error)
	// GiveUp ends a claim without a part.
	GiveUp(ctx context.Context, key string) error
	// Await waits for parts that others claimed, and tells which of them have ended
	// and whether they were made: none, when there is one to be claimed instead.
	Await(ctx context.Context, keys []string) (made map[string]bool, err error)
}

// fetchLanes is how many parts of others are fetched at once.
const fetchLanes = 8

// shareParts makes the missing parts, the dearest first, together with whoever
// assists.
func (r *run) shareParts(ctx context.Context, missing []*videoPart, parallel int) error {
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
			_, err = r.takeParts(ctx, open, parallel, "")
			claimable = false
		} else if ended, err = r.job.Coordinator.Await(ctx, slices.Collect(maps.Keys(open))); err == nil {
			err = r.collectParts(ctx, open, parallel, ended)
			claimable = len(ended) == 0
		}
		if err != nil {
			return fmt.Errorf("share parts: %w", err)
		}
		maps.DeleteFunc(open, func(key string, p *videoPart) bool {
			_, over := ended[key]
			_, here := r.decoded[p]
			return over || here
		})
	}
	return nil
}

// takeParts makes part after part until the coordinator has none left, and returns
// how many. The first one, unless "", is claimed already.
func (r *run) takeParts(ctx context.Context, parts map[string]*videoPart, parallel int, first string) (int, error) {
	c := r.job.Coordinator
	var made atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range parallel {
		key := first
		first = ""
		group.Go(func() (err error) {
			if key == "" {
				key, err = c.Next(ctx, "")
			}
			for key != "" && err == nil {
				p := parts[key]
				if p == nil { // whoever announced it is of another version
					return c.GiveUp(ctx, key)
				}
				if err := r.makePart(ctx, p); err != nil {
					if ctx.Err() == nil { // else somebody else may well make it
						err = errors.Join(err, c.GiveUp(ctx, key))
					}
					return err
				}
				made.Add(1)
				r.mu.Lock()
				kept := complete(r.decoded[p])
				r.mu.Unlock()
				if !kept {
					err, key = c.GiveUp(context.WithoutCancel(ctx), key), ""
				}
				if err == nil {
					key, err = c.Next(ctx, key)
				}
			}
			if err != nil {
				return fmt.Errorf("claim part: %w", err)
			}
			return nil
		})
	}
	err := group.Wait()
	return int(made.Load()), err
}

// collectParts fetches the parts that others made, and makes those that they could
// not, or that the cache has lost. That such a part might be made twice costs time
// only; the same one comes out.
func (r *run) collectParts(ctx context.Context, parts map[string]*videoPart, parallel int, ended map[string]bool) error {
	var mu sync.Mutex
	var lost []string
	fetching, fetchCtx := errgroup.WithContext(ctx)
	fetching.SetLimit(fetchLanes)
	for key, made := range ended {
		fetching.Go(func() error {
			if p := parts[key]; made && r.fetchPart(fetchCtx, p) {
				p.task.finish()
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			lost = append(lost, key)
			return context.Cause(fetchCtx)
		})
	}
	if err := fetching.Wait(); err != nil {
		return err
	}
	making, ctx := errgroup.WithContext(ctx)
	making.SetLimit(parallel)
	for _, key := range lost {
		making.Go(func() error { return r.makePart(ctx, parts[key]) })
	}
	return making.Wait()
}

// Assist makes parts of a job that somebody else renders, the claimed one first,
// until none is left or ctx ends. It writes to the part cache only. Of an error the
// client hears nothing here: whoever renders the job finds the same and says so.
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
	return r.takeParts(ctx, parts, parallel, claimed)
}
