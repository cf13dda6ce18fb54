package render

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
		var n int
		err := d.QueryRow(t.Context(), `SELECT COUNT(*) FROM render_jobs WHERE state = 'PROCESSING' AND lease_until > now_ms()`).Scan(&n)
		return err == nil && n > 0
	}
	direct, lossy := dbtest.Lossy(t, claimed)
	r := newHarness(t, direct)
	owner := r.user()
	r.enqueue(1, owner, r.source(owner))
	for range maxAttempts + 1 {
		s := r.service(&simulated{}, lossy)
		if _, ok, err := s.claim(t.Context()); ok || err == nil {
			t.Fatalf("the answer arrived: %v, %v", ok, err)
		}
		if r.exec(`UPDATE render_jobs SET lease_until = 0 WHERE state = 'PROCESSING'`); r.number(`SELECT MAX(fence) FROM render_jobs`) == 0 {
			t.Fatal("the claim was not committed")
		}
		if err := s.SweepJobs(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s := r.service(&simulated{}, direct)
	j, ok, err := s.claim(t.Context())
	if err != nil || !ok {
		t.Fatalf("claim: %v, %v", ok, err)
	}
	s.work(t.Context(), j)
	if n := r.number(`SELECT attempts FROM render_jobs WHERE state = 'COMPLETED'`); n != 1 {
		t.Errorf("%d attempts", n)
	}
}
