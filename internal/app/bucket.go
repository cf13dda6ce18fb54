package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"cutroom/internal/config"
	"cutroom/internal/db"
	"cutroom/internal/installation"
	"cutroom/internal/objectstore"
	"cutroom/internal/ops"
	"cutroom/internal/render"
	"cutroom/internal/separation"
	"cutroom/internal/sweep"
)

// claimEvery is the pause between two claims of a bucket that did not answer.
const claimEvery = 10 * time.Second

// claimStore returns an error if the bucket, or the disk, belongs to another installation. If the bucket does
// not answer, the service starts anyway, because not everything needs the bucket, and keepClaimingBucket
// tries again.
func (a *App) claimStore(ctx context.Context) error {
	if a.bucket == nil {
		return installation.ClaimDisk(ctx, a.db, a.cfg.Storage.Path)
	}
	lost, err := installation.Claim(ctx, a.db, a.bucket)
	if lost && err == nil {
		a.log.Warn("the bucket is empty and now belongs to this database, which had one before; if that had objects, OBJECT_STORE_BUCKET is wrong")
	}
	if _, foreign := errors.AsType[*installation.ForeignError](err); foreign {
		return err
	}
	if a.bucketClaimed = err == nil; !a.bucketClaimed {
		a.log.Warn("cannot read which installation the bucket belongs to; will try again", "err", err)
	}
	return nil
}

// keepClaimingBucket repeats claimStore until the bucket answers.
func (a *App) keepClaimingBucket(ctx context.Context) error {
	if a.bucket == nil {
		return nil
	}
	tick := time.NewTicker(claimEvery)
	defer tick.Stop()
	for !a.bucketClaimed {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if err := a.claimStore(ctx); err != nil {
			return err
		}
	}
	return nil
}

// newSweeper returns the sweeper of the object store. A nil bucket means a folder on this machine.
func newSweeper(cfg config.Config, d *db.DB, store objectstore.Store,
	bucket *objectstore.Bucket, m *ops.Sweeps, log *slog.Logger) *sweep.Sweeper {
	check := func(ctx context.Context) error { return installation.CheckDisk(ctx, d, cfg.Storage.Path) }
	if bucket != nil {
		check = func(ctx context.Context) error {
			err := installation.Check(ctx, d, bucket)
			_, foreign := errors.AsType[*installation.ForeignError](err)
			m.SetForeign(foreign)
			return err
		}
	}
	return sweep.New(sweep.Options{DB: d, Store: store, Check: check,
		Rules: append(separation.SweepRules(cfg.Storage.UploadsTTL),
			render.SweepRules(cfg.Storage.UploadsTTL, cfg.Asset.CacheTTL)...),
		Listed: m.SetStored, Removed: m.AddRemoved, Held: m.SetHeld, Log: log})
}

// OpenStore returns the configured object store: the bucket, or a folder on this machine, whose bucket is nil. Nil deps
// count nothing.
func OpenStore(cfg config.Config, deps *ops.Dependencies) (objectstore.Store, *objectstore.Bucket, error) {
	if bucket := NewBucket(cfg, deps); bucket != nil {
		return bucket, bucket, nil
	}
	dirs, err := makeFolders(cfg.Storage.Path)
	if err != nil {
		return nil, nil, err
	}
	dir, err := objectstore.NewDir(dirs.objects)
	return dir, nil, err
}

// NewSweeper returns the sweeper of the configured installation, for a command
// beside the service.
func NewSweeper(cfg config.Config, d *db.DB, log *slog.Logger) (*sweep.Sweeper, error) {
	store, bucket, err := OpenStore(cfg, nil)
	if err != nil {
		return nil, err
	}
	return newSweeper(cfg, d, store, bucket, ops.NewSweeps(nil), log), nil
}
