package separation

import (
	"testing"

	"cutroom/internal/db"
	"cutroom/internal/dbtest"
)

// A claim may be committed although its answer is lost. No worker has begun then, so it
// costs no attempt, however often it happens.
func TestClaimsWithoutAnAnswerCostNoAttempt(t *testing.T) {
	t.Parallel()
	claimed := func(d *db.DB) bool {
		n, err := inFlightNow(d)
		return err == nil && n > 0
	}
	direct, lossy := dbtest.Lossy(t, claimed)
	r := newHarness(t, direct)
	id := r.enqueue(r.service(), r.user(1))
	for range maxAttempts + 1 {
		if _, ok, err := r.service(func(o *Options) { o.DB = lossy }).claim(t.Context()); ok || err == nil {
			t.Fatalf("the answer arrived: %v, %v", ok, err)
		}
		if state := r.row(id).State; state != StateSubmitting {
			t.Fatalf("the claim was not committed: %s", state)
		}
		r.exec(`UPDATE separation_jobs SET lease_until = 0 WHERE id = $1`, id)
		if err := r.service().requeueDead(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if x := r.row(id); x.State != StateQueued || x.Attempts != 0 {
		t.Errorf("%+v", x)
	}
}
