package main

import (
	"context"
	"flag"
	"fmt"
	"io"
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
		return v.print(j, func(w io.Writer) { jobTable(w, j) })
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
		return v.print(map[string]string{"jobId": id, "status": render.StatePending}, func(w io.Writer) {
			fmt.Fprintf(w, "%s is PENDING again\n", id)
		})
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
		return v.print(jobs, func(w io.Writer) {
			for _, j := range jobs {
				cause := oneLine(string(j.Cause))
				if j.Cause == j.Error {
					cause = ""
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", j.FinishedAt, j.JobID, j.ErrorCode, j.Error, cause)
			}
		})
	})
}

// oneLine joins the lines of a text: "a:\n\tb\nc" becomes "a: b; c".
func oneLine(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" && b.Len() > 0 && strings.HasSuffix(b.String(), ":") {
			b.WriteString(" ")
		} else if line != "" && b.Len() > 0 {
			b.WriteString("; ")
		}
		b.WriteString(line)
	}
	return b.String()
}

func jobTable(w io.Writer, j admin.Job) {
	fmt.Fprintf(w, "%s\t%s\nowner\t%s\t%s\nstatus\t%s, %d %%\nattempts\t%d\n", j.JobType, j.JobID, j.UserID, j.Email,
		j.Status, j.Progress, j.Attempts)
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
	}{{"replica", j.Replica}, {"the user was told", j.Error}, {"error code", j.ErrorCode}, {"cause", j.Cause}, {"trace", j.Trace}} {
		if text.text != "" {
			fmt.Fprintf(w, "%s\t%s\n", text.what, text.text)
		}
	}
	fmt.Fprintf(w, "source\t%d ms\n", j.SourceDurationMs)
	if string(j.Inputs) != "null" {
		fmt.Fprintf(w, "inputs\t%s\n", j.Inputs)
	}
	for _, e := range j.Ledger {
		fmt.Fprintf(w, "%s\t%+d credits\t%s\n", e.Kind, e.Credits, e.CreatedAt)
	}
}
