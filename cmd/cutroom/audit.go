package main

import (
	"context"
	"fmt"

	"cutroom/internal/audit"
)

func showAudit(ctx context.Context, v *invocation) error {
	f := audit.Filter{Since: v.since}
	if f.Since.IsZero() {
		f.Limit = shortList
	}
	entries, err := audit.List(ctx, v.db, f)
	if err != nil {
		return err
	}
	return v.print(entries)
}

func checkSince(v *invocation) error {
	if v.since.IsZero() {
		return fmt.Errorf("%w: erasures needs --since <date>", errUsage)
	}
	return nil
}

// showErasures prints the ids of deleted accounts, one per line. Use it for a loop over `cutroom user erase`
// after a restore.
func showErasures(ctx context.Context, v *invocation) error {
	entries, err := audit.List(ctx, v.db, audit.Filter{Action: audit.AccountErased, Since: v.since})
	if err != nil {
		return err
	}
	ids := make([]string, 0, len(entries))
	for _, e := range entries {
		ids = append(ids, e.Target)
	}
	return v.print(ids)
}
