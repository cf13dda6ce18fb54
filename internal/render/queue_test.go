package render

import (
	"sync"
	"testing"
	"time"

	"cutroom/internal/db"
	"cutroom/internal/dbtest"
	"cutroom/internal/jobtest"
)

// The status contains the film's length while the film is being made.
func TestLengthIsKnownBeforeTheFilm(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		seen, owner := make(chan struct{}), r.User(0)
		s := r.service(&jobtest.Engine{Fails: func() error { <-seen; return nil }}, r.DB)
		ids := r.enqueue(1, owner, nil)
		r.run(s)
		goOn := sync.OnceFunc(func() { close(seen) })
		t.Cleanup(goOn)
		told := func(state string) bool {
			return r.Number(`SELECT COUNT(*) FROM jobs JOIN renders ON job_id = id WHERE id = $1 AND state = $2 AND output_duration_ms = $3`,
				ids[0], state, jobtest.FilmLength.Milliseconds()) == 1
		}
		r.Eventually("length told", func() bool { return told(StateProcessing) })
		goOn()
		r.Eventually("film made", func() bool { return told(StateCompleted) })
		if n := r.Number(`SELECT COUNT(*) FROM jobs JOIN renders ON job_id = id WHERE attempts <> 1 OR lease_owner IS NOT NULL OR progress <> 100
			OR expires_at - finished_at <> $1`, time.Hour.Milliseconds()); n != 0 {
			t.Error("the row differs from the row after one attempt")
		}
	})
}

// Every idle replica makes parts of a film, each part once.
func TestIdleReplicasAssist(t *testing.T) {
	const parts, replicas = 12, 3
	r := newHarness(t, dbtest.Postgres(t))
	r.UseBucket()
	engines := make([]*jobtest.Engine, replicas)
	begin := make(chan struct{})
	var stops []func()
	for i := range engines {
		engines[i] = &jobtest.Engine{Takes: 10 * time.Millisecond, Parts: parts, Begin: begin, Cache: r.partCache()}
		stops = append(stops, r.run(r.service(engines[i], r.DB)))
	}
	owner := r.User(0)
	r.enqueue(1, owner, r.source(owner))
	// The replica with the first part waits until another replica has made a part.
	r.Eventually("two work on it", func() bool {
		return r.Number(`SELECT COUNT(*) FROM render_parts WHERE state = 'MADE'`) > 0
	})
	close(begin)
	r.waitFor(1, StateCompleted)
	renders, helped, made := 0, 0, 0
	for i, e := range engines {
		stops[i]() // an assistant may find out only after the film's end that there are no more parts
		all, others := e.Made()
		renders, helped, made = renders+len(e.Films()), helped+others, made+all
	}
	if renders != 1 || helped == 0 || made != parts {
		t.Errorf("%d renders, %d parts by assistants, %d parts made, want 1, some and %d", renders, helped, made, parts)
	}
}

func TestClaimsWithoutAnAnswerCostNoAttempt(t *testing.T) {
	service := func(h *jobtest.Harness, d *db.DB) *Service {
		return (&harness{Harness: h}).service(&jobtest.Engine{}, d)
	}
	jobtest.Kind{
		Enqueue: func(h *jobtest.Harness) { (&harness{Harness: h}).enqueue(1, h.User(0), nil) },
		Claim: func(h *jobtest.Harness, d *db.DB) (bool, error) {
			s := service(h, d)
			if err := s.requeueDead(t.Context()); err != nil {
				return false, err
			}
			_, ok, err := s.claim(t.Context())
			return ok, err
		},
		Sweep: func(h *jobtest.Harness) error { return service(h, h.DB).SweepJobs(t.Context()) },
	}.TestLostClaims(t)
}
