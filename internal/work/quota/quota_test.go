package quota_test

import (
	"errors"
	"testing"

	"cutroom/internal/base/fault"
	"cutroom/internal/testkit/dbtest"
	"cutroom/internal/work/quota"
)

// An account may be above a limit: jobs go back to the queue, and operators lower limits.
func TestOnlySubmitsMindWaitingJobs(t *testing.T) {
	d := dbtest.SQLite(t)
	l := quota.New(quota.Usage{WaitingJobs: 2, StoredBytes: 10}, "3", "LENGTH($1)")
	full := fault.New(fault.Forbidden, "storage_full")
	for owner, want := range map[string]error{"9 bytes..": nil, "10 bytes..": full} {
		if err := l.CheckStored(t.Context(), d, owner, 1); !errors.Is(err, want) {
			t.Errorf("%s, one more: %v, want %v", owner, err, want)
		}
		if err := l.Check(t.Context(), d, owner, quota.Usage{}); !errors.Is(err, fault.New(fault.RateLimited, "too_many_jobs")) {
			t.Errorf("%s, submit: %v", owner, err)
		}
	}
}
