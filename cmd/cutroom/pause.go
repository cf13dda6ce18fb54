package main

import (
	"context"
	"fmt"
	"slices"

	"cutroom/internal/db"
	"cutroom/internal/job"
)

func pauseSubmissions(ctx context.Context, v *invocation) error {
	return v.switchSubmissions(ctx, job.Pause, "paused")
}

func resumeSubmissions(ctx context.Context, v *invocation) error {
	return v.switchSubmissions(ctx, job.Resume, "resumed")
}

// switchSubmissions pauses or resumes submissions on all replicas.
func (v *invocation) switchSubmissions(ctx context.Context,
	do func(context.Context, *db.DB, string, string) (bool, error), done string) error {
	kind := v.args[0]
	if !slices.Contains(job.Kinds, kind) {
		return fmt.Errorf("%q is not a kind of job: write render or separation", kind)
	}
	return v.withDatabase(ctx, func(d *db.DB) error {
		changed, err := do(ctx, d, kind, actor())
		if err != nil {
			return err
		}
		before := ""
		if !changed {
			before = " already"
		}
		return v.say(map[string]any{"type": kind, "state": done, "changed": changed},
			"Submissions of %s are %s%s on all replicas.", kind, done, before)
	})
}
