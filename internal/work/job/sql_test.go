package job

import (
	"slices"
	"testing"
)

// Each fragment has its own parameters; the statement numbers them after those before it.
func TestFragmentsAreNumberedWhereTheyStand(t *testing.T) {
	which := SQL(`a < $1 OR a > $2 AND b = $1`, 1, 2).And(SQL(`c = $1`, 3)).And(Fragment{})
	query, args := statement([]any{"id"}, `SELECT 1 WHERE id = $1 AND `, which, ` LIMIT 1`)
	if want := `SELECT 1 WHERE id = $1 AND (a < $2 OR a > $3 AND b = $2) AND (c = $4) LIMIT 1`; query != want {
		t.Errorf("%s\nwant %s", query, want)
	}
	if !slices.Equal(args, []any{"id", 1, 2, 3}) {
		t.Errorf("arguments %v", args)
	}
}
