package main

import (
	"context"
	"fmt"
	"slices"

	"cutroom/internal/db"
	"cutroom/internal/job"
)

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
