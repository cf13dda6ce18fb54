package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"strings"

	"cutroom/internal/admin"
	"cutroom/internal/app"
	"cutroom/internal/audit"
	"cutroom/internal/db"
	"cutroom/internal/render"
)

func showJob(ctx context.Context, v *invocation) error {
	j, err := v.readJob(ctx, v.args[0])
	if err != nil {
		return err
	}
	return v.print(j)
}

func checkRetry(v *invocation) error {
	if id := v.args[0]; strings.HasPrefix(id, "sep-") {
		return fmt.Errorf("%s is a separation, which was refunded when it failed: its owner can submit it again", id)
	}
	return nil
}

// retryJob queues a failed render again.
func retryJob(ctx context.Context, v *invocation) error {
	id := v.args[0]
	store, _, err := app.OpenStore(v.cfg, nil)
	if err != nil {
		return err
	}
	if err := render.Retry(ctx, v.db, store, id, func(tx *db.Tx) error {
		return audit.Record(ctx, tx, audit.Entry{Actor: actor(), Action: audit.RenderRetried, Target: id})
	}); err != nil {
		return err
	}
	return v.say(map[string]string{"jobId": id, "status": render.StatePending}, "%s is PENDING again", id)
}

// failedFlag adds --failed, which is required because no other list exists, and --since.
func failedFlag(fs *flag.FlagSet, v *invocation) {
	fs.BoolVar(&v.failed, "failed", false, "")
	sinceFlag(fs, v)
}

func checkFailed(v *invocation) error {
	if !v.failed {
		return fmt.Errorf("%w: jobs needs --failed", errUsage)
	}
	return nil
}

func showFailedJobs(ctx context.Context, v *invocation) error {
	limit := math.MaxInt32
	if v.since.IsZero() {
		limit = shortList
	}
	jobs, err := admin.New(v.db).FailedJobs(ctx, v.since, limit)
	if err != nil {
		return err
	}
	return v.print(jobs)
}
