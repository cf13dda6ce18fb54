package audit_test

import (
	"fmt"
	"testing"

	"cutroom/internal/base/db"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/work/audit"
)

// Many entries share a millisecond.
func TestEntriesAreListedNewestFirst(t *testing.T) {
	d := dbtest.SQLite(t)
	const n = 50
	if err := d.InTx(t.Context(), func(tx *db.Tx) error {
		for i := range n {
			if err := audit.Record(t.Context(), tx, audit.Entry{Action: audit.AdminGrant, Target: fmt.Sprint(i)}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	entries, err := audit.List(t.Context(), d, audit.Filter{})
	if err != nil || len(entries) != n {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	for i, e := range entries {
		if want := fmt.Sprint(n - 1 - i); e.Target != want {
			t.Errorf("entry %d is of %s, want %s", i, e.Target, want)
		}
	}
}
