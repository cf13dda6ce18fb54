package app

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"cutroom/internal/idempotency"
	"cutroom/internal/lease"
	"cutroom/internal/ratelimit"
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
		every(ctx, jobSweepEvery, func() {
			a.sweep("separation jobs", func() error { return a.separations.SweepJobs(ctx) })
			a.sweep("render jobs", func() error { return a.renders.SweepJobs(ctx) })
		})
		return nil
	})
	g.Go(func() error {
		every(ctx, userSweepEvery, func() {
			a.sweep("interrupted erasures", func() error { return a.accounts.FinishErasures(ctx) })
			a.sweep("idempotency keys", func() error { return idempotency.Sweep(ctx, a.db) })
			a.sweep("request limits", func() error { return ratelimit.Sweep(ctx, a.db) })
		})
		return nil
	})
	g.Go(func() error {
		// Apart from the others: it waits for the stores.
		every(ctx, userSweepEvery, func() { a.sweep("past sales", func() error { return a.credits.AskAboutSales(ctx) }) })
		return nil
	})
	g.Go(func() error {
		every(ctx, fileSweepEvery, func() { a.sweepFiles(ctx) })
		return nil
	})
	return g.Wait()
}

func (a *App) sweepFiles(ctx context.Context) {
	a.sweep("staged uploads", func() error { return a.staging.Sweep(a.cfg.Storage.UploadsTTL) })
	a.sweep("work folders", func() error { return a.separations.SweepFolders(ctx) })
	a.sweep("renders", func() error { return a.renders.Expire(ctx) })
	a.sweep("objects", func() error { return a.sweeper.Sweep(ctx, false) })
	a.sweep("asset cache", func() error { return a.assetCache.Sweep(a.cfg.Asset.CacheTTL) })
	a.sweep("part cache", func() error { _, err := a.parts.Sweep(ctx); return err })
}

// sweep runs one sweep. Its failure is worth a look, even though the sweep is
// tried again; its panic stops neither the others nor the process.
func (a *App) sweep(what string, do func() error) {
	if err := lease.Guard(do); err != nil && !errors.Is(err, context.Canceled) {
		a.outage.Log(a.log, slog.LevelError, what, "sweep failed; it will be tried again", "of", what, "err", err)
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
