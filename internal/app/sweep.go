package app

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"cutroom/internal/admin"
	"cutroom/internal/audit"
	"cutroom/internal/events"
	"cutroom/internal/idempotency"
	"cutroom/internal/objectstore"
	"cutroom/internal/ratelimit"
	"cutroom/internal/rescue"
)

// Intervals of the sweeps.
const (
	jobSweepEvery   = 5 * time.Second
	userSweepEvery  = time.Minute
	assetSweepEvery = 15 * time.Minute
	fileSweepEvery  = time.Hour
)

// callLifetime is how long the record of calls to the separation provider is kept.
const callLifetime = 30 * 24 * time.Hour

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

// rounds are the sweeps of what all replicas share. One replica runs them. Two may while the lease
// changes hands, which does no harm. A task that waits for other services has its own round.
func (a *App) rounds() []round {
	return []round{
		{jobSweepEvery, []task{
			{"separation jobs", a.separations.SweepJobs},
			{"render jobs", a.renders.SweepJobs},
		}},
		{userSweepEvery, []task{{"past sales", a.credits.CheckPastSales}}},
		{userSweepEvery, []task{
			{"interrupted erasures", a.accounts.FinishErasures},
			{"idempotency keys", func(ctx context.Context) error { return idempotency.Sweep(ctx, a.db) }},
			{"refused receipts", a.credits.SweepRefusals},
			{"request limits", func(ctx context.Context) error { return ratelimit.Sweep(ctx, a.db) }},
			{"totals of jobs", func(ctx context.Context) error { return admin.AddUpJobs(ctx, a.db) }},
		}},
		{assetSweepEvery, []task{{"assets", func(ctx context.Context) error {
			if err := a.sweeper.Check(ctx); err != nil {
				return err
			}
			if err := a.assets.Sweep(ctx); err != nil {
				return err
			}
			sizeBytes, err := a.assets.StoredBytes(ctx)
			a.sweeps.SetStored("assets", sizeBytes)
			return err
		}}}},
		{fileSweepEvery, []task{ // rows before the objects that they keep
			{"provider calls", func(ctx context.Context) error { return a.calls.Sweep(ctx, callLifetime) }},
			{"events", func(ctx context.Context) error { return events.Sweep(ctx, a.db) }},
			{"separations", a.separations.Expire},
			{"renders", a.renders.Expire},
			{"objects", func(ctx context.Context) error { return a.sweeper.Sweep(ctx, false) }},
			{"unfinished uploads", a.abortUploads},
		}},
	}
}

// ownRounds are the sweeps of this replica's disk.
func (a *App) ownRounds() []round {
	return []round{{fileSweepEvery, []task{
		{"staged uploads", func(context.Context) error { return a.staging.Sweep(a.cfg.Storage.UploadsTTL) }},
		{"work folders of separations", a.separations.SweepFolders},
		{"work folders of analyses", a.analysis.SweepFolders},
		{"work folders of renders", a.renders.SweepFolders},
		{"asset cache", func(ctx context.Context) error { return a.assetCache.Sweep(ctx, a.cfg.Asset.CacheTTL) }},
		{"part cache", func(ctx context.Context) error { return a.parts.Sweep(ctx, a.cfg.Asset.CacheTTL) }},
		{"parts of deleted accounts", a.erasePartsOfDeleted},
	}}}
}

// abortUploads aborts the bucket's uploads in parts of more than a day ago: those of clients that
// the database does not know, and those of replicas that died while they stored a large file.
func (a *App) abortUploads(ctx context.Context) error {
	if a.bucket == nil {
		return nil
	}
	if err := a.sweeper.Check(ctx); err != nil {
		return err
	}
	n, err := a.bucket.AbortUploads(ctx, 24*time.Hour, "assets/", "uploads/", "inputs/", "parts/", "render/", "separation/", "doctor/")
	if n > 0 {
		a.log.Info("unfinished uploads aborted", "uploads", n)
	}
	if errors.Is(err, objectstore.ErrUnsupported) {
		a.outage.Log(a.log, slog.LevelWarn, "uploads", "the bucket does not list unfinished uploads; a lifecycle rule must abort them", "err", err)
		return nil
	}
	return err
}

// erasePartsOfDeleted removes from this disk the parts of accounts that another replica erased.
func (a *App) erasePartsOfDeleted(ctx context.Context) error {
	erased, err := audit.List(ctx, a.db, audit.Filter{Action: audit.AccountErased,
		Since: time.Now().Add(-a.cfg.Asset.CacheTTL - fileSweepEvery)})
	for _, e := range erased {
		err = errors.Join(err, a.parts.EraseScope(ctx, e.Target))
	}
	return err
}

// runSweeps runs the sweeps until ctx ends.
func (a *App) runSweeps(ctx context.Context) {
	var own sync.WaitGroup
	defer own.Wait()
	own.Go(func() { a.runRounds(ctx, a.ownRounds()) })
	if a.cfg.Roles.Sweep {
		a.renewer.Exclusively(ctx, "sweep", func(ctx context.Context) {
			a.sweeps.Lead()
			defer a.sweeps.Resign()
			a.runRounds(ctx, a.rounds())
		})
	}
}

func (a *App) runRounds(ctx context.Context, rounds []round) {
	var all sync.WaitGroup
	for _, r := range rounds {
		all.Go(func() {
			every(ctx, r.every, func() {
				for _, t := range r.tasks {
					a.sweep(t.name, func() error { return t.run(ctx) })
				}
			})
		})
	}
	all.Wait()
}

// sweep runs one sweep and logs its failure. A panic stops neither the other sweeps nor the process.
func (a *App) sweep(name string, run func() error) {
	if err := rescue.Do(run); err != nil && !errors.Is(err, context.Canceled) {
		a.outage.Log(a.log, slog.LevelError, name, "sweep failed; it will be tried again", "of", name, "err", err)
	}
}

// every calls f at once and then at the interval, until ctx ends.
func every(ctx context.Context, interval time.Duration, f func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		f()
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}
