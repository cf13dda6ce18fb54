package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
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

// sharedParts are parts of a coordinator, and what their making is to the progress.
type sharedParts struct {
	parts    map[string]*videoPart
	tasks    map[string]*task
	parallel int // encoders
}

// announce opens the missing parts to everybody, the dearest first.
func (r *run) announce(ctx context.Context, missing []*videoPart, parallel int) (sharedParts, error) {
	slices.SortStableFunc(missing, func(a, b *videoPart) int { return cmp.Compare(b.cost(), a.cost()) })
	s := sharedParts{parts: map[string]*videoPart{}, tasks: map[string]*task{}, parallel: parallel}
	var keys []string
	for _, p := range missing {
		keys = append(keys, p.Key)
		s.parts[p.Key], s.tasks[p.Key] = p, r.meter.work(p.cost()/float64(parallel))
	}
	if err := r.job.Coordinator.Announce(ctx, keys); err != nil {
		return s, fmt.Errorf("announce parts: %w", err)
	}
	return s, nil
}

// shareParts makes the announced parts together with whoever assists.
func (r *run) shareParts(ctx context.Context, s sharedParts) error {
	for open := true; len(s.parts) > 0; {
		var ended map[string]bool
		var err error
		if open {
			_, err = r.takeParts(ctx, s, "")
			open = false
		} else if ended, err = r.job.Coordinator.Await(ctx, slices.Collect(maps.Keys(s.parts))); err == nil {
			err = r.collectParts(ctx, s, ended)
			open = len(ended) == 0
		}
		if err != nil {
			return fmt.Errorf("share parts: %w", err)
		}
		maps.DeleteFunc(s.parts, func(key string, p *videoPart) bool {
			_, over := ended[key]
			_, here := r.decoded[p]
			return over || here
		})
	}
	return nil
}

// takeParts makes part after part until the coordinator has none left, and returns
// how many. The first one, unless "", is claimed already.
func (r *run) takeParts(ctx context.Context, s sharedParts, first string) (int, error) {
	c := r.job.Coordinator
	var made atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range s.parallel {
		key := first
		first = ""
		group.Go(func() (err error) {
			if key == "" {
				key, err = c.Next(ctx, "")
			}
			for key != "" && err == nil {
				p := s.parts[key]
				if p == nil { // whoever announced it is of another version
					return c.GiveUp(ctx, key)
				}
				if err := r.makePart(ctx, p, s.tasks[key]); err != nil {
					if ctx.Err() == nil { // else somebody else may well make it
						err = errors.Join(err, c.GiveUp(ctx, key))
					}
					return err
				}
				s.tasks[key].finish()
				made.Add(1)
				r.mu.Lock()
				kept := r.decoded[p].complete()
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
func (r *run) collectParts(ctx context.Context, s sharedParts, ended map[string]bool) error {
	var mu sync.Mutex
	var lost []string
	fetching, fetchCtx := errgroup.WithContext(ctx)
	fetching.SetLimit(fetchLanes)
	for key, made := range ended {
		fetching.Go(func() error {
			if made && r.fetchPart(fetchCtx, s.parts[key]) {
				s.tasks[key].finish()
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
	making.SetLimit(s.parallel)
	for _, key := range lost {
		making.Go(func() error {
			if err := r.makePart(ctx, s.parts[key], s.tasks[key]); err != nil {
				return err
			}
			s.tasks[key].finish()
			return nil
		})
	}
	return making.Wait()
}

// Assist makes parts of a job that somebody else renders, the claimed one first,
// until none is left or ctx ends. It writes to the part cache only. Of an error the
// client hears nothing here: whoever renders the job finds the same and says so.
func (e *Engine) Assist(ctx context.Context, job Job, claimed string) (made int, err error) {
	r := e.newRun(job)
	defer os.RemoveAll(r.work)
	if err := r.open(ctx); err != nil {
		return 0, err
	}
	s := sharedParts{parts: map[string]*videoPart{}, parallel: r.plan.Parallel}
	if t, ok := r.loadThreadPlan(ctx); ok {
		t.apply(r.plan.Parts)
		s.parallel = t.Parallel
	}
	for _, p := range r.plan.Parts {
		s.parts[p.Key] = p
	}
	return r.takeParts(ctx, s, claimed)
}
