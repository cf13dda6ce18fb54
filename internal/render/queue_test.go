package render

import (
	"slices"
	"sync"
	"testing"
	"time"

	"cutroom/internal/db"
	"cutroom/internal/dbtest"
)

func eachDatabase(t *testing.T, test func(t *testing.T, r *harness)) {
	dbtest.Beside(t, func(t *testing.T, d *db.DB) { test(t, newHarness(t, d)) })
}

func TestJobsAreRenderedInTheOrderTheyCame(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		ids, _ := r.enqueue(8, r.user(), nil)
		e := &simulated{takes: time.Millisecond}
		stop := r.run(r.service(e, r.db))
		r.eventually("all rendered", time.Minute, func() bool {
			return r.number(`SELECT COUNT(*) FROM render_jobs WHERE state = 'COMPLETED'`) == 8
		})
		stop()
		var order []string
		for _, f := range e.rendered() {
			order = append(order, f.jobID)
		}
		if !slices.Equal(order, ids) {
			t.Errorf("rendered %v, want %v", order, ids)
		}
	})
}

func TestNoTwoReplicasRenderOneJob(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		const jobs, replicas = 24, 4
		engines := make([]*simulated, replicas)
		for i := range engines {
			engines[i] = &simulated{takes: 4 * time.Millisecond}
			r.run(r.service(engines[i], r.db))
		}
		ids, _ := r.enqueue(jobs, r.user(), nil)
		r.eventually("all rendered", time.Minute, func() bool {
			return r.number(`SELECT COUNT(*) FROM render_jobs WHERE state = 'COMPLETED'`) == jobs
		})
		times := map[string]int{}
		for _, e := range engines {
			for _, f := range e.rendered() {
				times[f.jobID]++
			}
		}
		for _, id := range ids {
			if times[id] != 1 {
				t.Errorf("%s was rendered %d times", id, times[id])
			}
		}
		if n := r.number(`SELECT COUNT(*) FROM render_jobs WHERE attempts <> 1 OR lease_owner IS NOT NULL OR progress <> 100
			OR expires_at - finished_at <> $1`, time.Hour.Milliseconds()); n != 0 {
			t.Errorf("%d rows are not what one attempt leaves", n)
		}
		if n := r.number(`SELECT COUNT(*) FROM render_sources`) + r.number(`SELECT COUNT(*) FROM render_parts`); n != 0 {
			t.Errorf("%d rows of finished jobs are left", n)
		}
	})
}

// The status has the film's length while the film is being made.
func TestLengthIsKnownBeforeTheFilm(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		seen, owner := make(chan struct{}), r.user()
		s := r.service(&simulated{fails: func() error { <-seen; return nil }}, r.db)
		ids, _ := r.enqueue(1, owner, nil)
		r.run(s)
		goOn := sync.OnceFunc(func() { close(seen) })
		t.Cleanup(goOn)
		told := func(state string) bool {
			return r.number(`SELECT COUNT(*) FROM render_jobs WHERE id = $1 AND state = $2 AND output_duration_ms = $3`,
				ids[0], state, filmLength.Milliseconds()) == 1
		}
		r.eventually("length told", time.Minute, func() bool { return told(StateProcessing) })
		goOn()
		r.eventually("film made", time.Minute, func() bool { return told(StateCompleted) })
	})
}

// A job whose worker died is older than the waiting jobs, and goes first.
func TestAbandonedJobsComeBeforeWaitingOnes(t *testing.T) {
	eachDatabase(t, func(t *testing.T, r *harness) {
		ids, _ := r.enqueue(3, r.user(), nil)
		lost := r.service(&simulated{}, r.db)
		for _, want := range ids[:2] {
			if j, ok, err := lost.claim(t.Context()); err != nil || !ok || j.ID != want {
				t.Fatalf("claimed %s, %v, %v, want %s", j.ID, ok, err, want)
			}
		}
		r.exec(`UPDATE render_jobs SET lease_until = now_ms() - 1 WHERE id = $1`, ids[0])
		other := r.service(&simulated{}, r.db)
		for _, want := range []string{ids[0], ids[2]} {
			if j, ok, err := other.claim(t.Context()); err != nil || !ok || j.ID != want {
				t.Fatalf("claimed %s, %v, %v, want %s", j.ID, ok, err, want)
			}
		}
		if j, ok, err := other.claim(t.Context()); err != nil || ok {
			t.Errorf("claimed %s, %v, though its worker lives", j.ID, err)
		}
	})
}

// Every idle replica makes parts of a film, each part once.
func TestIdleReplicasAssist(t *testing.T) {
	const parts, replicas = 12, 3
	r := newHarness(t, dbtest.Postgres(t))
	r.shareBucket()
	engines := make([]*simulated, replicas)
	begin := make(chan struct{})
	var stops []func()
	for i := range engines {
		engines[i] = &simulated{takes: 10 * time.Millisecond, parts: parts, begin: begin, cache: r.partCache()}
		stops = append(stops, r.run(r.service(engines[i], r.db)))
	}
	owner := r.user()
	r.enqueue(1, owner, r.source(owner))
	// The replica with the first part waits until another replica has made a part.
	r.eventually("two work on it", time.Minute, func() bool {
		return r.number(`SELECT COUNT(*) FROM render_parts WHERE state = 'MADE'`) > 0
	})
	close(begin)
	r.eventually("rendered", time.Minute, func() bool {
		return r.number(`SELECT COUNT(*) FROM render_jobs WHERE state = 'COMPLETED'`) == 1
	})
	renders, helped, made := 0, 0, 0
	for i, e := range engines {
		stops[i]() // an assistant may learn after the film's end that there is no more to do
		renders, helped, made = renders+len(e.rendered()), helped+e.helped, made+e.made
	}
	if renders != 1 || helped == 0 || made != parts {
		t.Errorf("%d renders, %d parts by assistants, %d parts made, want 1, some and %d", renders, helped, made, parts)
	}
}
