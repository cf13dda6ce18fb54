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

func checkKind(v *invocation) error {
	if !slices.Contains(job.Kinds, v.args[0]) {
		return fmt.Errorf("%q is not a kind of job: write render or separation", v.args[0])
	}
	return nil
}

// switchSubmissions pauses or resumes submissions on all replicas.
func (v *invocation) switchSubmissions(ctx context.Context,
	do func(context.Context, *db.DB, string, string) (bool, error), done string) error {
	kind := v.args[0]
	changed, err := do(ctx, v.db, kind, actor())
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
