package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"cutroom/internal/app"
	"cutroom/internal/base/db"
	"cutroom/internal/work/audit"
	"cutroom/internal/work/installation"
	"cutroom/internal/work/sweep"
)

// adoptBucket assigns the configured bucket to the configured database.
func adoptBucket(ctx context.Context, v *invocation) error {
	bucket := app.NewBucket(v.cfg, nil)
	if bucket == nil {
		return errors.New("no bucket is configured; `cutroom adopt-disk` assigns a disk")
	}
	before, after, err := installation.Adopt(ctx, v.db, bucket, actor())
	switch {
	case err != nil:
		return err
	case before == after:
		_, err = fmt.Fprintf(v.stdout, "the bucket %s already belongs to this database (installation %s)\n", bucket.Name(), after)
		return err
	case before == "":
		before = "no installation id"
	}
	_, err = fmt.Fprintf(v.stdout, "the bucket %s now belongs to this database (installation %s; before: %s)\n", bucket.Name(), after, before)
	return err
}

// adoptDisk assigns the disk at STORAGE_PATH to the configured database.
func adoptDisk(ctx context.Context, v *invocation) error {
	if app.NewBucket(v.cfg, nil) != nil {
		return errors.New("a bucket is configured; `cutroom adopt-bucket` assigns it")
	}
	before, after, err := installation.AdoptDisk(ctx, v.db, v.cfg.Storage.Path, actor())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(v.stdout, "the files of this database are now on disk %s, in %s (before: %s)\n",
		after, v.cfg.Storage.Path, cmp.Or(before, "no disk"))
	return err
}

// sweepObjects lists what a sweep would remove. With --confirm it removes those objects, even if the brake stops the
// service's own sweep.
func sweepObjects(ctx context.Context, v *invocation) error {
	sweeper, err := app.NewSweeper(v.cfg, v.db, v.log)
	if err != nil {
		return err
	}
	if err := sweeper.Check(ctx); err != nil {
		return err
	}
	found, err := sweeper.Plan(ctx)
	if _, held := errors.AsType[*sweep.HeldError](err); held && v.confirm {
		err = nil
	}
	if err = errors.Join(v.printFindings(found), err); err != nil || !v.confirm {
		return err
	}
	if err := recordSweep(ctx, v.db, found); err != nil {
		return err
	}
	return sweeper.Sweep(ctx, true)
}

// recordSweep writes the audit record of a confirmed sweep.
func recordSweep(ctx context.Context, d *db.DB, found []sweep.Finding) error {
	id, err := installation.ID(ctx, d)
	if err != nil {
		return err
	}
	unneeded, unknown := 0, 0
	for _, f := range found {
		unneeded, unknown = unneeded+len(f.Unneeded), unknown+len(f.Unknown)
	}
	return d.InTx(ctx, func(tx *db.Tx) error {
		return audit.Record(ctx, tx, audit.Entry{Actor: actor(), Action: audit.SweepConfirmed, Target: id,
			Detail: audit.Detail{"unneeded": unneeded, "unknown": unknown}})
	})
}

func (v *invocation) printFindings(found []sweep.Finding) error {
	type row struct {
		Kind     string     `json:"kind"`
		Objects  int        `json:"objects"`
		Unneeded int        `json:"unneeded"` // no longer needed
		Unknown  int        `json:"unknown"`  // not in the database
		Oldest   *time.Time `json:"oldest"`   // of these two
	}
	rows := []row{}
	for _, f := range found {
		r := row{Kind: f.Rule.Kind, Objects: f.Listed, Unneeded: len(f.Unneeded), Unknown: len(f.Unknown)}
		for _, o := range slices.Concat(f.Unneeded, f.Unknown) {
			if at := o.ModTime.UTC(); r.Oldest == nil || at.Before(*r.Oldest) {
				r.Oldest = &at
			}
		}
		rows = append(rows, r)
	}
	return v.print(rows)
}
