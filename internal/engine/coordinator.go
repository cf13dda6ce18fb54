package engine

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sync/errgroup"
)

// PartCoordinator shares the video parts of one render among machines that use the same
// part cache. Whoever renders the job and whoever assists ask it, part by part,
// who makes what. It is safe for concurrent use.
type PartCoordinator interface {
	// Announce opens the parts that have to be made to everybody. Only whoever
	// renders the job calls it, before any of its claims.
	Announce(ctx context.Context, keys []string) error
	// Claim reports whether the caller is to make the part. It does not wait,
	// and refuses parts that were not announced.
	Claim(ctx context.Context, key string) (mine bool, err error)
	// ClaimAny claims some announced part that nobody has taken, for an
	// assistant. It returns "" when there is none.
	ClaimAny(ctx context.Context) (key string, err error)
	// Made ends a claim: the part is in the cache, or it was given up.
	Made(ctx context.Context, key string, ok bool) error
	// Await waits for a part that somebody else claimed. It reports whether the
	// part was made; false means that its maker gave up or died.
	Await(ctx context.Context, key string) (made bool, err error)
}

// sharePart makes a part, unless somebody that shares the render is at it: then the part
// is waited for when everything else is done.
func (r *run) sharePart(ctx context.Context, p *videoPart, t *task) error {
	if r.job.Coordinator == nil {
		return r.makePart(ctx, p, t)
	}
	mine, err := r.job.Coordinator.Claim(ctx, p.Key)
	if err != nil {
		return fmt.Errorf("claim part: %w", err)
	}
	if !mine {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.others = append(r.others, p)
		return nil
	}
	return r.makeClaimed(ctx, p, t)
}

func (r *run) makeClaimed(ctx context.Context, p *videoPart, t *task) error {
	err := r.makePart(ctx, p, t)
	r.mu.Lock()
	kept := err == nil && r.decoded[p].complete()
	r.mu.Unlock()
	if merr := r.job.Coordinator.Made(context.WithoutCancel(ctx), p.Key, kept); merr != nil {
		r.log.Warn("end of part not announced", "key", p.Key, "error", merr)
	}
	return err
}

// awaitOthers collects the parts that others make, and makes those whose maker
// was lost.
func (r *run) awaitOthers(ctx context.Context) error {
	for _, p := range r.others {
		made, err := r.job.Coordinator.Await(ctx, p.Key)
		if err != nil {
			return fmt.Errorf("await part: %w", err)
		}
		if made && r.fetchPart(ctx, p) {
			continue
		}
		// Given up, lost, or no longer in the cache: it is made here. That it
		// might be made twice costs time only; the same part comes out.
		if err := r.makePart(ctx, p, r.meter.work(0)); err != nil {
			return err
		}
	}
	return nil
}

// Assist makes parts of a job that somebody else renders, until none is left to
// claim or ctx ends. It writes to the part cache only. Of an error the client
// hears nothing here: whoever renders the job finds the same and says so.
func (e *Engine) Assist(ctx context.Context, job Job) (made int, err error) {
	r := e.newRun(job)
	defer os.RemoveAll(r.work)
	if err := r.open(ctx); err != nil {
		return 0, err
	}
	parallel := r.plan.Parallel
	if s, ok := r.loadThreadPlan(ctx); ok {
		s.apply(r.plan.Parts)
		parallel = s.Parallel
	}
	parts := map[string]*videoPart{}
	for _, p := range r.plan.Parts {
		parts[p.Key] = p
	}
	group, ctx := errgroup.WithContext(ctx)
	for range parallel {
		group.Go(func() error {
			for ctx.Err() == nil {
				key, err := job.Coordinator.ClaimAny(ctx)
				if err != nil {
					return fmt.Errorf("claim part: %w", err)
				}
				p := parts[key]
				switch {
				case key == "":
					return nil
				case p == nil: // whoever announced it is of another version
					return job.Coordinator.Made(context.WithoutCancel(ctx), key, false)
				}
				if err := r.makeClaimed(ctx, p, r.meter.work(0)); err != nil {
					return err
				}
				r.mu.Lock()
				made++
				r.mu.Unlock()
			}
			return nil
		})
	}
	return made, group.Wait()
}
