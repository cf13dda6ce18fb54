package job

import (
	"context"

	"cutroom/internal/base/db"
)

// CompleteIn is [Table.Complete] without the look for a lost answer, in the caller's transaction.
func (t Table) CompleteIn(ctx context.Context, tx *db.Tx, c Claim, done Completion) error {
	return t.complete(ctx, tx, c, done)
}
