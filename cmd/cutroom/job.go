package main

import (
	"context"
	"fmt"
	"io"

	"cutroom/internal/admin"
	"cutroom/internal/db"
)

func showJob(ctx context.Context, v *invocation) error {
	return v.withDatabase(ctx, func(d *db.DB) error {
		j, err := readJob(ctx, d, v.args[0])
		if err != nil {
			return err
		}
		return v.print(j, func(w io.Writer) { jobTable(w, j) })
	})
}

func jobTable(w io.Writer, j admin.Job) {
	fmt.Fprintf(w, "%s\t%s\nowner\t%s\t%s\nstatus\t%s, %d %%\nattempts\t%d\n", j.JobType, j.JobID, j.UserID, j.Email, j.Status, j.Progress, j.Attempts)
	for _, at := range []struct {
		what string
		time admin.Time
	}{
		{"submitted", j.CreatedAt}, {"started", j.StartedAt}, {"at the provider", j.ProcessingAt}, {"provider done", j.ProviderDoneAt},
		{"finished", j.FinishedAt}, {"last collected", j.CollectedAt}, {"expires", j.ExpiresAt}, {"deleted by its owner", j.DeletedAt},
	} {
		if !at.time.IsZero() {
			fmt.Fprintf(w, "%s\t%s\n", at.what, at.time)
		}
	}
	for _, text := range []struct {
		what string
		text admin.Text
	}{{"replica", j.Replica}, {"node", j.Node}, {"the user was told", j.Error}, {"error code", j.ErrorCode}, {"cause", j.Cause}} {
		if text.text != "" {
			fmt.Fprintf(w, "%s\t%s\n", text.what, text.text)
		}
	}
	fmt.Fprintf(w, "source\t%d ms\ninputs\t%s\n", j.SourceDurationMs, j.Inputs)
	for _, e := range j.Ledger {
		fmt.Fprintf(w, "%s\t%+d credits\t%s\n", e.Kind, e.Credits, e.CreatedAt)
	}
}
