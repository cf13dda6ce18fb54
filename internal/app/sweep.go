package app

import (
	"context"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"cutroom/internal/httpapi"
	"cutroom/internal/idempotency"
)

// Intervals of the sweeps. Every replica runs all of them; they are written so
// that two at once do no harm.
const (
	jobSweepEvery  = 5 * time.Second
	userSweepEvery = time.Minute
	fileSweepEvery = time.Hour
)

// runSweeps moves on what no request and no worker will, until ctx ends.
func (a *App) runSweeps(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error {
		every(ctx, jobSweepEvery, func() { a.swept("separation jobs", a.separations.SweepJobs(ctx)) })
		return nil
	})
	g.Go(func() error {
		every(ctx, userSweepEvery, func() {
			a.swept("interrupted erasures", a.accounts.FinishErasures(ctx))
			a.swept("idempotency keys", idempotency.Sweep(ctx, a.db))
			a.swept("rate limits", httpapi.SweepRateLimits(ctx, a.db))
		})
		return nil
	})
	g.Go(func() error {
		every(ctx, fileSweepEvery, func() { a.sweepFiles(ctx) })
		return nil
	})
	return g.Wait()
}

func (a *App) sweepFiles(ctx context.Context) {
	a.swept("staged uploads", a.staging.Sweep(a.cfg.Storage.UploadsTTL))
	a.swept("stems", a.separations.SweepFiles(ctx))
	a.swept("renders", a.renders.Sweep(ctx))
	a.swept("asset cache", a.assetCache.Sweep(a.cfg.Asset.CacheTTL))
	_, err := a.parts.Sweep(ctx)
	a.swept("part cache", err)
}

func (a *App) swept(what string, err error) {
	if err != nil {
		a.log.Warn("sweep failed; it will be tried again", "of", what, "err", err)
	}
}

// every calls do at once and then at the interval, a little early or late, so
// that replicas started together do not sweep together.
func every(ctx context.Context, interval time.Duration, do func()) {
	for ctx.Err() == nil {
		do()
		wait := interval - time.Duration(rand.Int64N(int64(interval)/5))
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
		case <-t.C:
		}
	}
}
