package main

import (
	"context"
	"fmt"

	"cutroom/internal/audit"
	"cutroom/internal/db"
)

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
		return v.print(entries)
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
		return v.print(ids)
	})
}
