package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"strings"

	"cutroom/internal/admin"
	"cutroom/internal/app"
	"cutroom/internal/audit"
	"cutroom/internal/config"
	"cutroom/internal/db"
	"cutroom/internal/render"
)

func showJob(ctx context.Context, v *invocation) error {
	return v.withDatabase(ctx, func(d *db.DB) error {
		j, err := readJob(ctx, d, v.args[0])
		if err != nil {
			return err
		}
		return v.print(j)
	})
}

// retryJob queues a failed render again.
func retryJob(ctx context.Context, v *invocation) error {
	id := v.args[0]
	if strings.HasPrefix(id, "sep-") {
		return fmt.Errorf("%s is a separation, which was refunded when it failed: its owner can submit it again", id)
	}
	return v.withInstallation(ctx, func(cfg config.Config, d *db.DB, _ *slog.Logger) error {
		store, err := app.OpenStore(cfg)
		if err != nil {
			return err
		}
		if err := render.Retry(ctx, d, store, id, func(tx *db.Tx) error {
			return audit.Record(ctx, tx, audit.Entry{Actor: actor(), Action: audit.RenderRetried, Target: id})
		}); err != nil {
			return err
		}
		return v.say(map[string]string{"jobId": id, "status": render.StatePending}, "%s is PENDING again", id)
	})
}

// failedFlag adds --failed, which is required because no other list exists, and --since.
func failedFlag(fs *flag.FlagSet, v *invocation) {
	fs.BoolVar(&v.failed, "failed", false, "")
	sinceFlag(fs, v)
}

func showFailedJobs(ctx context.Context, v *invocation) error {
	if !v.failed {
		return fmt.Errorf("%w: jobs needs --failed", errUsage)
	}
	limit := 0
	if v.since.IsZero() {
		limit = shortList
	}
	return v.withDatabase(ctx, func(d *db.DB) error {
		jobs, err := admin.New(d).FailedJobs(ctx, v.since, limit)
		if err != nil {
			return err
		}
		return v.print(jobs)
	})
}
