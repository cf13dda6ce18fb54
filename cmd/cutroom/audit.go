package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"cutroom/internal/audit"
	"cutroom/internal/db"
)

// shortList is the number of audit entries shown without --since.
const shortList = 100

func showAudit(ctx context.Context, v *invocation) error {
	f := audit.Filter{Since: v.since}
	if f.Since.IsZero() {
		f.Limit = shortList
	}
	return v.withDatabase(ctx, func(d *db.DB) error {
		entries, err := audit.List(ctx, d, f)
		if err != nil {
			return err
		}
		return v.print(entries, func(w io.Writer) {
			for _, e := range entries {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", e.Time.Format(time.RFC3339), e.Actor, e.Action, e.Target, e.Detail)
			}
		})
	})
}

// showErasures prints the ids of deleted accounts, one per line. Use it for a loop over `cutroom user erase`
// after a restore.
func showErasures(ctx context.Context, v *invocation) error {
	if v.since.IsZero() {
		return fmt.Errorf("%w: erasures needs --since <date>", errUsage)
	}
	return v.withDatabase(ctx, func(d *db.DB) error {
		entries, err := audit.List(ctx, d, audit.Filter{Action: audit.AccountErased, Since: v.since})
		if err != nil {
			return err
		}
		ids := make([]string, 0, len(entries))
		for _, e := range entries {
			ids = append(ids, e.Target)
		}
		return v.print(ids, func(w io.Writer) {
			for _, id := range ids {
				fmt.Fprintln(w, id)
			}
		})
	})
}
