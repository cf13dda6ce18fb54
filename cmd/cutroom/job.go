package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"cutroom/internal/app"
	"cutroom/internal/base/db"
	"cutroom/internal/domain/admin"
	"cutroom/internal/domain/asset"
	"cutroom/internal/domain/render"
	"cutroom/internal/work/audit"
	"cutroom/internal/work/events"
	"cutroom/internal/work/job"
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
	store, bucket, err := app.OpenStore(v.cfg, nil)
	if err != nil {
		return err
	}
	assets := asset.New(asset.Options{DB: v.db, Bucket: bucket})
	if err := render.Retry(ctx, assets, store, id, func(tx *db.Tx) error {
		return audit.Record(ctx, tx, audit.Entry{Actor: actor(), Action: audit.RenderRetried, Target: id})
	}); err != nil {
		return err
	}
	return v.say(map[string]string{"jobId": id, "status": render.StatePending}, "%s is PENDING again", id)
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

func checkKind(v *invocation) error {
	if !slices.Contains(job.Kinds, v.args[0]) {
		return fmt.Errorf("%q is not a kind of job: write render or separation", v.args[0])
	}
	return nil
}

// setSubmissions pauses or resumes submissions on all replicas.
func setSubmissions(set func(context.Context, *db.DB, string, string) (bool, error), done string) runFunc {
	return func(ctx context.Context, v *invocation) error {
		kind := v.args[0]
		changed, err := set(ctx, v.db, kind, actor())
		if err != nil {
			return err
		}
		before := ""
		if !changed {
			before = " already"
		}
		return v.say(map[string]any{"type": kind, "state": done, "changed": changed},
			"Submissions of %s are %s%s on all replicas.", kind, done, before)
	}
}

// listEvents prints the newest events, or all events whose web hook was given up.
func listEvents(ctx context.Context, v *invocation) error {
	limit := int64(shortList)
	if v.failed {
		limit = math.MaxInt32
	}
	list, err := events.List(ctx, v.db, v.failed, limit, 0)
	if err != nil {
		return err
	}
	return v.print(list)
}

func checkEvents(v *invocation) error {
	if (len(v.args) == 1) == !v.since.IsZero() {
		return fmt.Errorf("%w: events retry needs the id of an event or --since", errUsage)
	}
	return nil
}

// retryEvents calls the web hook again for one event, or for all since a time.
func retryEvents(ctx context.Context, v *invocation) error {
	if v.cfg.Webhook.URL == "" {
		return errors.New("WEBHOOK_URL is not set: there is no receiver for events")
	}
	n := int64(1)
	var err error
	if v.since.IsZero() {
		err = events.Resend(ctx, v.db, v.args[0])
	} else {
		n, err = events.ResendSince(ctx, v.db, v.since)
	}
	if err != nil {
		return err
	}
	return v.say(map[string]int64{"events": n}, "%d events will be sent again", n)
}
