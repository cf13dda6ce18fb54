package job

import (
	"context"
	"fmt"

	"cutroom/internal/base/cursor"
	"cutroom/internal/base/db"
	"cutroom/internal/work/user"
)

// Known is the condition that the user $1 owns job j and has not deleted it.
var Known = `j.user_id = $1 AND j.deleted_at IS NULL AND ` + user.Exists("j.user_id")

// Page returns a page of the owner's jobs, newest first, and the cursor of the next one, "" at the end. The columns are
// of job j and its details d.
func Page[T any](ctx context.Context, t Table, columns, owner string, p cursor.Page,
	scan func(db.Scanner) (T, error), of func(T) cursor.Cursor) (page []T, next string, err error) {
	page, next, err = cursor.List(ctx, t.DB, `SELECT `+columns+` FROM `+t.rows()+` WHERE `+Known+cursor.Newest("j.created_at", "j.id"),
		owner, p, scan, of, t.Prefix)
	if err != nil {
		err = fmt.Errorf("list jobs: %w", err)
	}
	return page, next, err
}
