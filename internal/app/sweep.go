// The sweeps of a replica: which rounds of them it runs, how often, and how the replicas choose the one that sweeps
// what they all share.

package app

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"cutroom/internal/base/rescue"
	"cutroom/internal/storage/objectstore"
	"cutroom/internal/work/audit"
	"cutroom/internal/work/events"
	"cutroom/internal/work/idempotency"
	"cutroom/internal/work/ratelimit"
)

// Intervals of the sweeps.
const (
	jobSweepEvery   = 5 * time.Second
	userSweepEvery  = time.Minute
	assetSweepEvery = 15 * time.Minute
	fileSweepEvery  = time.Hour
)

// task is one sweep.
type task struct {
	name string
	run  func(context.Context) error
}

// round is a list of sweeps that run one after the other.
type round struct {
	every time.Duration
	tasks []task
}

// buildSweeps lists the sweeps. One replica at a time sweeps what all replicas share; two may for a moment, while the
// lease changes hands, which is harmless. Tasks that wait for other services have a round of their own.
func (b *builder) buildSweeps(context.Context) error {
	b.rounds = []round{
		{jobSweepEvery, []task{
			{"separation jobs", b.separations.SweepJobs},
			{"render jobs", b.renders.SweepJobs},
		}},
		{userSweepEvery, []task{{"past sales", b.credits.CheckPastSales}}},
		{userSweepEvery, []task{
			{"interrupted erasures", b.accounts.FinishErasures},
			{"idempotency keys", func(ctx context.Context) error { return idempotency.Sweep(ctx, b.db) }},
			{"refused receipts", b.credits.SweepRefusals},
			{"request limits", func(ctx context.Context) error { return ratelimit.Sweep(ctx, b.db) }},
		}},
		{assetSweepEvery, []task{{"assets", func(ctx context.Context) error {
			if err := b.sweeper.Check(ctx); err != nil {
				return err
			}
			if err := b.assets.Sweep(ctx); err != nil {
				return err
			}
			sizeBytes, err := b.assets.StoredBytes(ctx)
			b.sweeps.SetStored("assets", sizeBytes)
			return err
		}}}},
		{fileSweepEvery, []task{ // rows before the objects that they protect
			{"events", func(ctx context.Context) error { return events.Sweep(ctx, b.db) }},
			{"separations", b.separations.Expire},
			{"renders", b.renders.Expire},
			{"objects", func(ctx context.Context) error { return b.sweeper.Sweep(ctx, false) }},
			{"unfinished uploads", b.abortUploads},
		}},
	}
	b.ownRounds = []round{{fileSweepEvery, []task{
		{"staged uploads", func(context.Context) error { return b.staging.Sweep(b.cfg.Storage.UploadsTTL) }},
		{"work folders of separations", b.separations.SweepFolders},
		{"work folders of analyses", b.analysis.SweepFolders},
		{"work folders of renders", b.renders.SweepFolders},
		{"asset cache", func(context.Context) error { return b.assetCache.Sweep(b.cfg.Asset.CacheTTL) }},
		{"part cache", func(context.Context) error { return b.parts.Sweep(b.cfg.Asset.CacheTTL) }},
		{"parts of deleted accounts", b.erasePartsOfDeleted},
	}}}
	return nil
}

// abortUploads aborts the multipart uploads in the bucket that are more than a day old: those of clients that the
// database does not know, and those of replicas that died while they stored a large file.
func (b *builder) abortUploads(ctx context.Context) error {
	if b.bucket == nil {
		return nil
	}
	if err := b.sweeper.Check(ctx); err != nil {
		return err
	}
	n, err := b.bucket.AbortUploads(ctx, 24*time.Hour, "assets/", "uploads/", "inputs/", "parts/", "render/", "separation/", "doctor/")
	if n > 0 {
		b.log.Info("unfinished uploads aborted", "uploads", n)
	}
	if errors.Is(err, objectstore.ErrUnsupported) {
		b.outage.Log(b.log, slog.LevelWarn, "uploads",
			"the bucket does not list unfinished uploads; a lifecycle rule must abort them", "err", err)
		return nil
	}
	return err
}

// erasePartsOfDeleted removes from this disk the parts of accounts that another replica erased.
func (b *builder) erasePartsOfDeleted(ctx context.Context) error {
	erased, err := audit.List(ctx, b.db, audit.Filter{Action: audit.AccountErased,
		Since: time.Now().Add(-b.cfg.Asset.CacheTTL - fileSweepEvery)})
	for _, e := range erased {
		err = errors.Join(err, b.parts.EraseScope(ctx, e.Target))
	}
	return err
}

// runSweeps runs the sweeps until ctx ends.
func (a *App) runSweeps(ctx context.Context) {
	var own sync.WaitGroup
	defer own.Wait()
	own.Go(func() { a.runRounds(ctx, a.ownRounds) })
	if a.cfg.Roles.Sweep {
		a.renewer.RunExclusive(ctx, "sweep", func(ctx context.Context) {
			a.sweeps.Lead()
			defer a.sweeps.Resign()
			a.runRounds(ctx, a.rounds)
		})
	}
}

// runRounds runs each round immediately and then at its interval. A panic stops neither the other sweeps nor the
// process.
func (a *App) runRounds(ctx context.Context, rounds []round) {
	var all sync.WaitGroup
	for _, r := range rounds {
		all.Go(func() {
			tick := time.NewTicker(r.every)
			defer tick.Stop()
			for ctx.Err() == nil {
				for _, t := range r.tasks {
					err := rescue.Do(func() error { return t.run(ctx) })
					if err != nil && !errors.Is(err, context.Canceled) {
						a.outage.Log(a.log, slog.LevelError, t.name, "sweep failed; it will be tried again", "of", t.name, "err", err)
					}
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	all.Wait()
}
