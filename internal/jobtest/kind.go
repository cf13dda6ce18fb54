package jobtest

import (
	"context"
	"testing"

	"cutroom/internal/db"
	"cutroom/internal/dbtest"
)

// Kind is a kind of job.
type Kind struct {
	Table   string
	Enqueue func(h *Harness)
	// Claim claims a job for a new replica on the connections of d.
	Claim func(h *Harness, d *db.DB) (ok bool, err error)
	Sweep func(h *Harness) error
}

// TestLostClaims checks claims whose commit takes place although the answer is lost. No
// worker has begun then, so they cost no attempt, however often it happens.
func (k Kind) TestLostClaims(t *testing.T) {
	t.Parallel()
	direct, lossy := dbtest.Lossy(t, func(d *db.DB) bool {
		var n int
		err := d.QueryRow(context.WithoutCancel(t.Context()), `SELECT COUNT(*) FROM `+k.Table+` WHERE lease_until > now_ms()`).Scan(&n)
		return err == nil && n > 0
	})
	h := New(t, direct)
	k.Enqueue(h)
	const attempts = 3
	for fence := range attempts + 1 {
		if ok, err := k.Claim(h, lossy); ok || err == nil {
			t.Fatalf("the answer arrived: %v, %v", ok, err)
		}
		if h.Number(`SELECT COUNT(*) FROM `+k.Table+` WHERE fence > $1 AND lease_owner IS NOT NULL`, fence) != 1 {
			t.Fatal("the claim was not committed")
		}
		h.Exec(`UPDATE ` + k.Table + ` SET lease_until = 0`)
		if err := k.Sweep(h); err != nil {
			t.Fatal(err)
		}
	}
	if ok, err := k.Claim(h, direct); err != nil || !ok || h.Number(`SELECT attempts FROM `+k.Table) != 0 {
		t.Errorf("claimed %v, %v, after %d attempts", ok, err, h.Number(`SELECT attempts FROM `+k.Table))
	}
}
